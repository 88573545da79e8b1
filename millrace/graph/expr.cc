#include "millrace/graph/expr.h"

#include <limits>
#include <optional>

#include "millrace/tensor/dispatch.h"

namespace millrace {

namespace {

// Saturates where T is an integer that cannot hold `value`; NaN becomes 0.
template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (is_complex_v<T>) {
    return T(static_cast<typename RealPart<T>::Type>(value));
  } else if constexpr (std::is_integral_v<T>) {
    if (value != value) return 0;
    // The bounds are powers of two (or one less), so the comparison in double is exact enough.
    if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
      return std::numeric_limits<T>::min();
    }
    if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
      return std::numeric_limits<T>::max();
    }
    return static_cast<T>(value);
  } else {
    return T(value);
  }
}

Result<Tensor> make_scalar(DType dtype, double value) {
  Tensor tensor;
  using Types = ConcatTypes<NumberTypes, TypeList<bool>>;
  MR_TRY(
      dispatch<Types>(dtype, [&]<class T>() { tensor = Tensor::scalar(from_double<T>(value)); }));
  return tensor;
}

// The dimensions of the broadcast of `own` with `other` that must be summed over to come back to
// `own`, split into those before its first one and those within it.
struct Axes {
  std::vector<int32_t> leading;
  std::vector<int32_t> within;
};

// Nothing when the shapes do not say enough.
std::optional<Axes> reduction_axes(const PartialShape& own, const PartialShape& other) {
  if (!own.rank_known() || !other.rank_known()) return std::nullopt;
  Axes axes;
  const int before = std::max(other.rank() - own.rank(), 0);
  for (int i = 0; i < before; ++i) axes.leading.push_back(i);
  for (int i = 0; i < own.rank(); ++i) {
    const int j = other.rank() - own.rank() + i;
    const int64_t theirs = j < 0 ? 1 : other.dim(j);
    if (theirs == 1) continue;
    if (!own.dim_known(i)) return std::nullopt;
    if (own.dim(i) == 1) axes.within.push_back(before + i);
  }
  return axes;
}

Expr int32_constant(OpBuilder& builder, std::span<const int32_t> values) {
  return builder.constant(Tensor::vector<int32_t>(values));
}

// `x`, with the shape of `input`: a constant where that is known.
Expr reshape_like(Expr x, Expr input) {
  if (!x.valid()) return x;
  const Result<Shape> shape = input.shape().to_shape();
  if (!shape.ok()) return reshape(x, shape_of(input));
  std::vector<int32_t> dims;
  for (int64_t d : shape->dims()) {
    if (d > std::numeric_limits<int32_t>::max()) {
      return reshape(x, x.builder()->constant(Tensor::vector<int64_t>(shape->dims())));
    }
    dims.push_back(static_cast<int32_t>(d));
  }
  return reshape(x, int32_constant(*x.builder(), dims));
}

Expr sum_over(Expr gradient, const Axes& axes, Expr input) {
  if (axes.leading.empty() && axes.within.empty()) return gradient;
  OpBuilder& builder = *gradient.builder();
  if (axes.within.empty()) return sum(gradient, int32_constant(builder, axes.leading));
  if (axes.leading.empty()) return sum(gradient, int32_constant(builder, axes.within), true);
  std::vector<int32_t> all = axes.leading;
  all.insert(all.end(), axes.within.begin(), axes.within.end());
  return reshape_like(sum(gradient, int32_constant(builder, all)), input);
}

}  // namespace

const Tensor* OpBuilder::constant_value(Expr) const { return nullptr; }

Expr call(std::string_view op, const std::vector<Expr>& inputs, AttrMap attrs) {
  const std::vector<Expr> outputs = call_multi(op, inputs, std::move(attrs));
  return outputs.empty() ? Expr() : outputs[0];
}

Expr call(std::string_view op, std::initializer_list<Expr> inputs, AttrMap attrs) {
  return call(op, std::vector<Expr>(inputs), std::move(attrs));
}

std::vector<Expr> call_multi(std::string_view op, const std::vector<Expr>& inputs, AttrMap attrs) {
  OpBuilder* builder = nullptr;
  for (Expr input : inputs) {
    if (!input.valid()) continue;
    if (builder == nullptr || input.builder()->depth() > builder->depth()) {
      builder = input.builder();
    }
  }
  if (builder == nullptr) return {};
  return builder->emit(op, inputs, std::move(attrs));
}

Expr constant_like(Expr like, double value) {
  if (!like.valid()) return Expr();
  Result<Tensor> tensor = make_scalar(base_type(like.dtype()), value);
  if (tensor.ok()) return like.builder()->constant(*tensor);
  like.builder()->fail(tensor.status().with_prefix(str_cat("constant ", value)));
  return Expr();
}

Expr int32_vector(OpBuilder& builder, std::initializer_list<int32_t> values) {
  return builder.constant(Tensor::vector<int32_t>(values));
}

Expr int32_scalar(OpBuilder& builder, int32_t value) {
  return builder.constant(Tensor::scalar<int32_t>(value));
}

Expr operator+(Expr a, Expr b) { return call("Add", {a, b}); }
Expr operator-(Expr a, Expr b) { return call("Sub", {a, b}); }
Expr operator*(Expr a, Expr b) { return call("Mul", {a, b}); }
Expr operator/(Expr a, Expr b) { return call("RealDiv", {a, b}); }
Expr operator-(Expr a) { return call("Neg", {a}); }
Expr operator+(Expr a, double b) { return a + constant_like(a, b); }
Expr operator-(Expr a, double b) { return a - constant_like(a, b); }
Expr operator*(Expr a, double b) { return a * constant_like(a, b); }
Expr operator/(Expr a, double b) { return a / constant_like(a, b); }
Expr operator+(double a, Expr b) { return constant_like(b, a) + b; }
Expr operator-(double a, Expr b) { return constant_like(b, a) - b; }
Expr operator*(double a, Expr b) { return constant_like(b, a) * b; }
Expr operator/(double a, Expr b) { return constant_like(b, a) / b; }

Expr abs(Expr x) { return call("Abs", {x}); }
Expr cast(Expr x, DType to) { return x.dtype() == to ? x : call("Cast", {x}, {{"DstT", to}}); }
Expr concat(const std::vector<Expr>& values, int axis) {
  if (values.empty() || !values[0].valid()) return Expr();
  if (values.size() == 1) return values[0];
  std::vector<Expr> inputs = values;
  inputs.push_back(int32_scalar(*values[0].builder(), axis));
  return call("ConcatV2", inputs);
}
Expr cos(Expr x) { return call("Cos", {x}); }
Expr equal(Expr a, Expr b) { return call("Equal", {a, b}); }
Expr exp(Expr x) { return call("Exp", {x}); }
Expr expand_dims(Expr x, Expr axis) { return call("ExpandDims", {x, axis}); }
Expr fill(Expr shape, Expr value) { return call("Fill", {shape, value}); }
Expr greater(Expr a, Expr b) { return call("Greater", {a, b}); }
Expr greater_equal(Expr a, Expr b) { return call("GreaterEqual", {a, b}); }
Expr identity(Expr x) { return call("Identity", {x}); }
Expr less(Expr a, Expr b) { return call("Less", {a, b}); }
Expr less_equal(Expr a, Expr b) { return call("LessEqual", {a, b}); }
Expr log(Expr x) { return call("Log", {x}); }
Expr logical_and(Expr a, Expr b) { return call("LogicalAnd", {a, b}); }
Expr matmul(Expr a, Expr b, bool transpose_a, bool transpose_b) {
  return call("MatMul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}
Expr ones_like(Expr x) { return call("OnesLike", {x}); }
Expr pow(Expr a, Expr b) { return call("Pow", {a, b}); }
Expr range(Expr start, Expr limit, Expr delta) { return call("Range", {start, limit, delta}); }
Expr rank(Expr x) { return call("Rank", {x}); }
Expr reciprocal(Expr x) { return call("Reciprocal", {x}); }
Expr reshape(Expr x, Expr shape) { return call("Reshape", {x, shape}); }
Expr rsqrt(Expr x) { return call("Rsqrt", {x}); }
Expr select(Expr condition, Expr if_true, Expr if_false) {
  return call("Select", {condition, if_true, if_false});
}
Expr shape_of(Expr x, DType out_type) { return call("Shape", {x}, {{"out_type", out_type}}); }
Expr sign(Expr x) { return call("Sign", {x}); }
Expr sin(Expr x) { return call("Sin", {x}); }
Expr size_of(Expr x, DType out_type) { return call("Size", {x}, {{"out_type", out_type}}); }
Expr sqrt(Expr x) { return call("Sqrt", {x}); }
Expr square(Expr x) { return call("Square", {x}); }
Expr sum(Expr x, Expr axes, bool keep_dims) {
  return call("Sum", {x, axes}, {{"keep_dims", keep_dims}});
}
Expr tanh(Expr x) { return call("Tanh", {x}); }
Expr tile(Expr x, Expr multiples) { return call("Tile", {x, multiples}); }
Expr transpose(Expr x, Expr permutation) { return call("Transpose", {x, permutation}); }
Expr zeros_like(Expr x) { return call("ZerosLike", {x}); }

Expr sum_to_shape_of(Expr gradient, Expr input) {
  if (!gradient.valid() || !input.valid()) return Expr();
  if (const auto axes = reduction_axes(input.shape(), gradient.shape())) {
    return sum_over(gradient, *axes, input);
  }
  const Expr shape = shape_of(input);
  const std::vector<Expr> axes = call_multi("BroadcastGradientArgs", {shape, shape_of(gradient)});
  return axes.empty() ? Expr() : reshape(sum(gradient, axes[0]), shape);
}

ExprPair unbroadcast(Expr ga, Expr gb, Expr a, Expr b) {
  if (!a.valid() || !b.valid()) return {};
  const auto axes_a = reduction_axes(a.shape(), b.shape());
  const auto axes_b = reduction_axes(b.shape(), a.shape());
  ExprPair out;
  if (axes_a && ga.valid()) out.first = sum_over(ga, *axes_a, a);
  if (axes_b && gb.valid()) out.second = sum_over(gb, *axes_b, b);
  const bool need_a = !axes_a && ga.valid();
  const bool need_b = !axes_b && gb.valid();
  if (!need_a && !need_b) return out;
  const Expr shape_a = shape_of(a);
  const Expr shape_b = shape_of(b);
  const std::vector<Expr> axes = call_multi("BroadcastGradientArgs", {shape_a, shape_b});
  if (axes.size() < 2) return {};
  if (need_a) out.first = reshape(sum(ga, axes[0]), shape_a);
  if (need_b) out.second = reshape(sum(gb, axes[1]), shape_b);
  return out;
}

}  // namespace millrace
