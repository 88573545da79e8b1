#include "millrace/ops/reduce/reduction_gradients.h"

#include "millrace/graph/gradient.h"

namespace millrace {
namespace {

// The axes as an int32 vector, each in [0, rank).
Expr plain_axes(Expr x, Expr axes) {
  if (!x.valid()) return x;
  if (axes.dtype() != DType::kInt32) axes = cast(axes, DType::kInt32);
  // A scalar has no axes, but even no axes are not to be divided by zero.
  const Expr size = call("Maximum", {rank(x), int32_scalar(*x.builder(), 1)});
  return call("FloorMod", {reshape(axes, int32_vector(*x.builder(), {-1})), size});
}

// The shape of x with size 1 in the reduced dimensions.
Expr kept_shape(Expr x, Expr axes) {
  const Expr plain = plain_axes(x, axes);
  const Expr reduced = call("UnsortedSegmentSum", {ones_like(plain), plain, rank(x)});
  return shape_of(x) * (1.0 - reduced) + reduced;
}

// Results (or their gradients) in a shape that broadcasts against the input.
class Kept {
 public:
  static Result<Kept> make(GradientContext& g) {
    MR_TRY_ASSIGN(const bool keep_dims, g.attr<bool>("keep_dims"));
    // A scalar broadcasts as it is.
    if (keep_dims || g.output(0).shape().rank() == 0) return Kept(Expr());
    return Kept(kept_shape(g.input(0), g.input(1)));
  }
  Expr operator()(Expr y) const { return shape_.valid() ? reshape(y, shape_) : y; }

 private:
  explicit Kept(Expr shape) : shape_(shape) {}
  Expr shape_;  // invalid: nothing to do
};

// The shape is a constant where it is known: nobody has to keep x for it.
Expr broadcast_to_shape_of(Expr y, Expr x) {
  const Result<Shape> known = x.valid() ? x.shape().to_shape() : Result<Shape>(Shape());
  if (!x.valid() || !known.ok()) return call("BroadcastTo", {y, shape_of(x)});
  const Expr sizes = x.builder()->constant(Tensor::vector<int64_t>(known->dims()));
  return call("BroadcastTo", {y, sizes});
}

// How many elements one result is made of, in the dtype of `like`.
Expr elements_per_result(GradientContext& g, Expr like) {
  const Expr x = g.input(0);
  const int64_t in = x.shape().num_elements();
  const int64_t out = g.output(0).shape().num_elements();
  if (in >= 0 && out > 0) return constant_like(like, static_cast<double>(in / out));
  const Expr one = int32_scalar(g.builder(), 1);
  const Expr count = call("FloorDiv", {size_of(x), call("Maximum", {size_of(g.output(0)), one})});
  return cast(count, like.dtype());
}

// The product along `axis` of all elements but the one itself.
Expr product_of_others(Expr x, Expr axis) {
  const Expr before = call("Cumprod", {x, axis}, {{"exclusive", true}});
  const Expr after = call("Cumprod", {x, axis}, {{"exclusive", true}, {"reverse", true}});
  return before * after;
}

// The same over several axes: they go to the front, become one, and go back.
Expr product_of_others_over(Expr x, Expr axes) {
  if (!x.valid() || !axes.valid()) return Expr();
  const Expr zero = int32_scalar(*x.builder(), 0), one = int32_scalar(*x.builder(), 1);
  const std::vector<Expr> rest = call_multi("ListDiff", {range(zero, rank(x), one), axes});
  if (rest.empty()) return Expr();
  const Expr permutation = concat({axes, rest[0]}, 0);
  const Expr turned = transpose(x, permutation);
  const Expr reduced_size = call("Prod", {call("Gather", {shape_of(x), axes}), zero});
  const Expr rest_size = call("Prod", {call("Gather", {shape_of(x), rest[0]}), zero});
  const Expr rows = reshape(turned, call("Pack", {reduced_size, rest_size}));
  const Expr others = reshape(product_of_others(rows, zero), shape_of(turned));
  return transpose(others, call("InvertPermutation", {permutation}));
}

}  // namespace

Expr widened(Expr x) {
  const bool narrow = x.dtype() == DType::kHalf || x.dtype() == DType::kBFloat16;
  return narrow ? cast(x, DType::kFloat) : x;
}

Status sum_gradient(GradientContext& g) {
  MR_TRY_ASSIGN(const Kept kept, Kept::make(g));
  g.set(0, broadcast_to_shape_of(kept(g.gradient()), g.input(0)));
  return ok_status();
}

Status mean_gradient(GradientContext& g) {
  MR_TRY_ASSIGN(const Kept kept, Kept::make(g));
  const Expr dy = widened(g.gradient());
  const Expr share = cast(dy / elements_per_result(g, dy), g.gradient().dtype());
  g.set(0, broadcast_to_shape_of(kept(share), g.input(0)));
  return ok_status();
}

Status max_or_min_gradient(GradientContext& g) {
  MR_TRY_ASSIGN(const Kept kept, Kept::make(g));
  MR_TRY_ASSIGN(const bool keep_dims, g.attr<bool>("keep_dims"));
  const Expr x = g.input(0);
  const Expr dy = widened(g.gradient());
  const Expr chosen = cast(equal(x, kept(g.output(0))), dy.dtype());
  const Expr count = kept(sum(chosen, g.input(1), keep_dims));
  g.set(0, cast(chosen / count * kept(dy), x.dtype()));
  return ok_status();
}

Status prod_gradient(GradientContext& g) {
  MR_TRY_ASSIGN(const Kept kept, Kept::make(g));
  const Expr x = g.input(0), axes = g.input(1);
  Expr others = axes.shape().num_elements() == 1
                    ? product_of_others(x, reshape(axes, int32_vector(g.builder(), {})))
                    : product_of_others_over(x, plain_axes(x, axes));
  if (x.dtype() == DType::kComplex64 || x.dtype() == DType::kComplex128) {
    others = call("Conj", {others});
  }
  g.set(0, others * kept(g.gradient()));
  return ok_status();
}

}  // namespace millrace
