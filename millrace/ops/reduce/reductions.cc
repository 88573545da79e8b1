// Sum, Mean, Max, Min, Prod, All, Any: over the given axes, one result per element of the others.

#include <algorithm>
#include <memory>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/reduce/folded_elements.h"
#include "millrace/ops/reduce/reduce.h"
#include "millrace/ops/reduce/reduction_gradients.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status reduction_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool keep_dims, c.attr<bool>("keep_dims"));
  MR_TRY_ASSIGN(PartialShape y,
                reduced_shape(c.input(0), c.input(1), c.input_vector(1), keep_dims));
  c.set_output(0, std::move(y));
  return ok_status();
}

// Nothing when there are no elements to take it from.
template <class T>
std::optional<int64_t> fold_ints(Reduction kind, const PartialValue& x) {
  using U = std::make_unsigned_t<T>;
  if (x.elements.empty()) {
    if (kind == Reduction::kSum) return 0;
    if (kind == Reduction::kProd) return 1;
    return std::nullopt;
  }
  T acc = static_cast<T>(*x.elements[0]);
  for (size_t i = 1; i < x.elements.size(); ++i) {
    const T e = static_cast<T>(*x.elements[i]);
    switch (fold_op(kind)) {
      case FoldOp::kSum:
        acc = static_cast<T>(static_cast<U>(acc) + static_cast<U>(e));
        break;
      case FoldOp::kProd:
        acc = static_cast<T>(static_cast<U>(acc) * static_cast<U>(e));
        break;
      case FoldOp::kMax:
        acc = std::max(acc, e);
        break;
      case FoldOp::kMin:
        acc = std::min(acc, e);
        break;
    }
  }
  return acc;
}

// Mean has no rule: shapes are not made of averages.
template <Reduction kind>
void reduction_value(ValueContext& c) {
  const PartialValue* x = c.input(0);
  const PartialValue* axes = c.input(1);
  const Result<DType> dtype = c.attr<DType>("T");
  const Result<bool> keep_dims = c.attr<bool>("keep_dims");
  if (x == nullptr || axes == nullptr || !dtype.ok() || !keep_dims.ok()) return;
  if (axes->elements.empty()) {
    c.set_output(0, *x);
    return;
  }
  // A vector has one axis, which the shape rule has checked.
  if (x->is_scalar || !x->fully_known()) return;
  std::optional<int64_t> y;
  if (*dtype == DType::kInt32) y = fold_ints<int32_t>(kind, *x);
  if (*dtype == DType::kInt64) y = fold_ints<int64_t>(kind, *x);
  if (y) c.set_output(0, {.is_scalar = !*keep_dims, .elements = {y}});
}

constexpr int64_t kSmall = 64;  // accumulators that fit on the stack

// Folds `x`, elements of T, into `outputs` results of `count` elements each.
template <class T>
Status fold_to(KernelContext& ctx, Reduction kind, const void* x, ReduceDims& dims, int64_t count,
               void* out, int64_t outputs) {
  using A = Folded<T>;
  T* to = static_cast<T*>(out);
  if constexpr (std::is_same_v<A, T>) {
    MR_TRY(reduce<A>(ctx, fold_op(kind), {.data = x}, dims, to));
    if (kind == Reduction::kMean) from_folded<T, A>(kind, to, outputs, count, to);
  } else {
    const bool ordered = kind == Reduction::kMax || kind == Reduction::kMin;
    const FoldSource<A> source = {
        .data = x,
        .element_size = sizeof(T),
        .convert = ordered ? to_folded<T, A, true> : to_folded<T, A, false>};
    A small[kSmall];
    A* acc = small;
    Tensor large;
    if (outputs > kSmall) {
      MR_TRY_ASSIGN(large, ctx.allocate_temp(dtype_of<A>, Shape{outputs}));
      acc = static_cast<A*>(large.mutable_raw());
    }
    MR_TRY(reduce<A>(ctx, fold_op(kind), source, dims, acc));
    from_folded<T, A>(kind, acc, outputs, count, to);
  }
  return ok_status();
}

// Reduces `x`, which has elements, to `y`, along one dimension at least.
template <class T>
Status reduce_to(KernelContext& ctx, Reduction kind, const Tensor& x, ReduceDims& dims, Tensor& y) {
  const int64_t outputs = y.num_elements(), count = x.num_elements() / outputs;
  if constexpr (is_complex_v<T>) {
    if (kind == Reduction::kProd) {
      return reduce<T>(ctx, FoldOp::kProd, {.data = x.raw()}, dims,
                       static_cast<T*>(y.mutable_raw()));
    }
    // A sum of complex numbers is two sums side by side.
    dims.add(2, false);
    using R = typename RealPart<T>::Type;
    return fold_to<R>(ctx, kind, x.raw(), dims, count, y.mutable_raw(), 2 * outputs);
  } else {
    return fold_to<T>(ctx, kind, x.raw(), dims, count, y.mutable_raw(), outputs);
  }
}

DeviceEngine::Reduction engine_kind(Reduction kind) {
  switch (kind) {
    case Reduction::kSum:
      return DeviceEngine::Reduction::kSum;
    case Reduction::kMean:
      return DeviceEngine::Reduction::kMean;
    case Reduction::kProd:
      return DeviceEngine::Reduction::kProd;
    case Reduction::kMax:
      return DeviceEngine::Reduction::kMax;
    case Reduction::kMin:
      return DeviceEngine::Reduction::kMin;
  }
  return DeviceEngine::Reduction::kSum;
}

// The same as reduce_to() where kernels enqueue.
Status reduce_on_device(KernelContext& ctx, DeviceEngine& device, Reduction kind, const Tensor& x,
                        const ReduceDims& dims, Tensor& y) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < dims.count(); ++i) sizes.push_back(dims.size(i));
  return device.reduce(ctx, engine_kind(kind), x.dtype(), x.raw(), {sizes, dims.reduced(0)},
                       y.mutable_raw());
}

// Makes every element of `y` the result of folding nothing.
template <class T>
Status fill_empty(KernelContext& ctx, Reduction kind, Tensor& y) {
  const T value = empty_result<T>(kind);
  if (DeviceEngine* const device = device_engine(ctx)) {
    return device->fill(ctx, sizeof value, &value, /*host=*/true, y.mutable_raw(),
                        y.num_elements());
  }
  std::ranges::fill(y.mutable_data<T>(), value);
  return ok_status();
}

template <class T>
Status reduce_tensor(KernelContext& ctx, Reduction kind, bool keep_dims) {
  const Tensor& x = ctx.input(0);
  ReduceDims dims;
  MR_TRY_ASSIGN(const Shape shape, read_reduction(ctx.input(1), x.shape(), keep_dims, dims));
  if (x.num_elements() == 0) {
    MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
    return fill_empty<T>(ctx, kind, *y);
  }
  if (dims.num_reduced() == 0) {
    Value value = ctx.take_input(0);
    MR_TRY_ASSIGN(value.tensor, value.tensor.reshaped(shape));
    ctx.set_output_value(0, std::move(value));
    return ok_status();
  }
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
  if (DeviceEngine* const device = device_engine(ctx)) {
    return reduce_on_device(ctx, *device, kind, x, dims, *y);
  }
  return reduce_to<T>(ctx, kind, x, dims, *y);
}

using FoldedTypes = ConcatTypes<NumberTypes, TypeList<bool>>;

class Reduce final : public Kernel {
 public:
  using Function = Status (*)(KernelContext&, Reduction, bool);

  template <Reduction kind>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool keep_dims, node.attr<bool>("keep_dims"));
    Function function = nullptr;
    MR_TRY(dispatch<FoldedTypes>(node.output_types[0],
                                 [&]<class T>() { function = reduce_tensor<T>; }));
    return std::unique_ptr<Kernel>(new Reduce(function, kind, keep_dims));
  }
  Reduce(Function function, Reduction kind, bool keep_dims)
      : function_(function), kind_(kind), keep_dims_(keep_dims) {}

  Status compute(KernelContext& ctx) const override { return function_(ctx, kind_, keep_dims_); }

 private:
  Function function_;
  Reduction kind_;
  bool keep_dims_;
};

OpSpec reduction_spec(const char* name, const char* doc) {
  return {
      .name = name,
      .doc = doc,
      .inputs = {{"input", "T"},
                 {"reduction_indices", "host(Tidx)", "The axes to reduce; negative from the end."}},
      .outputs = {{"output", "T"}},
      .types = {{"T", kNumberTypes}, {"Tidx", kIndexTypes, DType::kInt32}},
      .attrs = {{"keep_dims", "bool = false", "Keeps reduced dimensions, with size 1."}},
      .traits = {.same_when_same_shape = true,
                 .may_alias = 1,
                 .cost = 0.2F,
                 .same_when_empty = 2,
                 .folds = true,
                 .dimensions_in = "reduction_indices"},
      .shape = reduction_shape};
}

template <Reduction kind>
void register_one(Registry& registry, const char* name, const char* doc, TypeSet computed,
                  GradientRule gradient) {
  OpSpec spec = reduction_spec(name, doc);
  spec.gradient = gradient;
  if constexpr (kind != Reduction::kMean) spec.value = reduction_value<kind>;
  registry.add(spec);
  registry.kernel({.op = name, .constraints = {{"T", computed}}, .factory = Reduce::make<kind>});
}

// A truth value is 0 or 1: "all" is the minimum, "any" the maximum.
template <Reduction kind>
void register_logical(Registry& registry, const char* name, const char* doc) {
  OpSpec spec = reduction_spec(name, doc);
  spec.inputs[0].type = "bool";
  spec.outputs[0].type = "bool";
  spec.types = {{"Tidx", kIndexTypes, DType::kInt32}};
  spec.traits.cannot_differentiate = true;
  registry.add(spec);
  registry.kernel({.op = name, .factory = Reduce::make<kind>});
}

}  // namespace

Result<PartialShape> reduced_shape(const PartialShape& x, const PartialShape& axes_shape,
                                   const std::optional<std::vector<int64_t>>& axes,
                                   bool keep_dims) {
  if (axes_shape.rank() > 1) {
    return invalid_argument("reduction_indices must be at most rank 1, got shape ", axes_shape);
  }
  const int64_t num_axes = axes_shape.num_elements();
  if (x.rank_known() && num_axes > x.rank()) {
    return invalid_argument(num_axes, " axes to reduce, but the input has shape ", x);
  }
  if (!x.rank_known()) return axes && axes->empty() ? x : PartialShape();
  if (!axes) {
    if (keep_dims) return PartialShape::of_rank(x.rank());
    return num_axes >= 0 ? PartialShape::of_rank(x.rank() - static_cast<int>(num_axes))
                         : PartialShape();
  }
  std::vector<bool> reduced(static_cast<size_t>(x.rank()));
  for (int64_t given : *axes) {
    MR_TRY_ASSIGN(const int axis, normalize_axis(given, x.rank(), "reduction axis"));
    if (reduced[static_cast<size_t>(axis)]) {
      return invalid_argument("reduction axis ", given, " is given twice for shape ", x);
    }
    reduced[static_cast<size_t>(axis)] = true;
  }
  PartialShape y = PartialShape::scalar();
  for (int i = 0; i < x.rank(); ++i) {
    if (!reduced[static_cast<size_t>(i)]) {
      y.add_dim(x.dim(i));
    } else if (keep_dims) {
      y.add_dim(1);
    }
  }
  return y;
}

Status fold_tensor(KernelContext& ctx, Reduction kind, const Tensor& x, ReduceDims& dims,
                   Tensor& out) {
  return dispatch<FoldedTypes>(x.dtype(), [&]<class T>() -> Status {
    if (x.num_elements() == 0) {
      return fill_empty<T>(ctx, kind, out);
    }
    DeviceEngine* const device = device_engine(ctx);
    if (device != nullptr) {
      if (dims.num_reduced() > 0) {
        return reduce_on_device(ctx, *device, kind, x, dims, out);
      }
      return device->copy(ctx, x.raw(), out.mutable_raw(), x.bytes());
    }
    if (dims.num_reduced() == 0) {
      std::ranges::copy(x.data<T>(), out.mutable_data<T>().begin());
      return ok_status();
    }
    return reduce_to<T>(ctx, kind, x, dims, out);
  });
}

Status sum_tensor(KernelContext& ctx, const Tensor& x, ReduceDims& dims, Tensor& out) {
  return fold_tensor(ctx, Reduction::kSum, x, dims, out);
}

void register_reductions(Registry& registry) {
  register_one<Reduction::kSum>(registry, "Sum", "The sum over the given axes.", kNumbers,
                                sum_gradient);
  register_one<Reduction::kMean>(registry, "Mean", "The mean over the given axes.", kNumbers,
                                 mean_gradient);
  register_one<Reduction::kProd>(registry, "Prod", "The product over the given axes.", kNumbers,
                                 prod_gradient);
  register_one<Reduction::kMax>(registry, "Max", "The largest element over the given axes.",
                                kRealNumbers, max_or_min_gradient);
  register_one<Reduction::kMin>(registry, "Min", "The smallest element over the given axes.",
                                kRealNumbers, max_or_min_gradient);
  register_logical<Reduction::kMin>(registry, "All", "Whether all elements are true.");
  register_logical<Reduction::kMax>(registry, "Any", "Whether any element is true.");
}

}  // namespace millrace
