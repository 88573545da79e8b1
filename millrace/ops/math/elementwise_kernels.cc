#include "millrace/ops/math/elementwise_kernels.h"

#include "millrace/ops/device_engine.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Units of work are this many elements, so that the loops see whole vectors.
constexpr int64_t kGrain = 1024;

// body(begin, end) over n elements, on several threads when that pays.
template <class F>
void for_range(KernelContext& ctx, int64_t n, double cost, F&& body) {
  if (static_cast<double>(n) * cost < 10000) return body(int64_t{0}, n);
  ctx.parallel_for((n + kGrain - 1) / kGrain, cost * kGrain, [&](int64_t first, int64_t last) {
    body(first * kGrain, last * kGrain < n ? last * kGrain : n);
  });
}

DType operand_type(const KernelNode& node) { return base_type(node.input_types[0]); }

Status no_kernel(const KernelNode& node, const OpInfo& info) {
  return unimplemented(info.name, " is not computed for ", operand_type(node));
}

}  // namespace

Status check_operand(OperandCheck check, const Tensor& y) {
  if (check == OperandCheck::kNone || !kIntegers.contains(y.dtype())) return ok_status();
  return dispatch<IntegerTypes>(y.dtype(), [&]<class T>() -> Status {
    bool bad = false;
    if (check == OperandCheck::kDivisor) {
      for (T v : y.data<T>()) bad |= v == 0;
      return bad ? invalid_argument("Integer division by zero") : ok_status();
    }
    for (T v : y.data<T>()) bad |= v < T{0};
    return bad ? invalid_argument("Integers to negative integer powers are not allowed")
               : ok_status();
  });
}

Result<std::unique_ptr<Kernel>> UnaryKernel::make(const KernelNode& node, const OpInfo& info) {
  const UnaryFunction function(info, operand_type(node));
  if (!function) return no_kernel(node, info);
  return std::unique_ptr<Kernel>(new UnaryKernel(info, function));
}

Status UnaryKernel::compute(KernelContext& ctx) const {
  const void* x = ctx.input(0).raw();
  const Shape shape = ctx.input(0).shape();
  const size_t in_size = dtype_size(ctx.input(0).dtype());
  MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0}, 0, shape));
  void* y = out->mutable_raw();
  if (DeviceEngine* const device = device_engine(ctx)) {
    return device->unary(ctx, info_.name, operand_type(ctx.node()), x, y, shape.num_elements());
  }
  const size_t out_size = dtype_size(out->dtype());
  for_range(ctx, shape.num_elements(), info_.cost, [&](int64_t begin, int64_t end) {
    function_(static_cast<const char*>(x) + static_cast<size_t>(begin) * in_size,
              static_cast<char*>(y) + static_cast<size_t>(begin) * out_size, end - begin);
  });
  return ok_status();
}

Result<std::unique_ptr<Kernel>> BinaryKernel::make(const KernelNode& node, const OpInfo& info) {
  const DType dtype = operand_type(node);
  const BinaryFunction function(info, dtype);
  if (!function) return no_kernel(node, info);
  bool unequal_shapes_compare = false;
  if (node.attrs.find("incompatible_shape_error") != nullptr) {
    MR_TRY_ASSIGN(const bool error, node.attr<bool>("incompatible_shape_error"));
    unequal_shapes_compare = !error;
  }
  return std::unique_ptr<Kernel>(new BinaryKernel(info, function, dtype, unequal_shapes_compare));
}

namespace {

// What a binary kernel does on a device whose kernels enqueue.
Status compute_on_device(KernelContext& ctx, DeviceEngine& device, const OpInfo& info, DType dtype,
                         bool unequal_shapes_compare) {
  const Shape a = ctx.input(0).shape(), b = ctx.input(1).shape();
  if (!(a == b) && !info.broadcasts) {
    return invalid_argument("inputs must have one shape: ", a, " and ", b);
  }
  const Result<BroadcastPlan> plan = BroadcastPlan::make({&a, &b});
  if (!plan.ok()) {
    if (!unequal_shapes_compare) return plan.status();
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
    const bool differ = std::string_view(info.name) == "NotEqual";
    return device.fill(ctx, sizeof differ, &differ, /*host=*/true, out->mutable_raw(), 1);
  }
  const void* const x = ctx.input(0).raw();
  const void* const y = ctx.input(1).raw();
  MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0, 1}, 0, plan->shape()));
  return device.binary(ctx, info.name, dtype, {x, &a}, {y, &b}, out->mutable_raw(), plan->shape());
}

}  // namespace

Status BinaryKernel::compute(KernelContext& ctx) const {
  if (DeviceEngine* const device = device_engine(ctx)) {
    return compute_on_device(ctx, *device, info_, dtype_, unequal_shapes_compare_);
  }
  const Tensor& a = ctx.input(0);
  const Tensor& b = ctx.input(1);
  const bool same = a.shape() == b.shape();
  const bool a_repeats = !same && a.num_elements() == 1 && a.rank() <= b.rank();
  const bool b_repeats = !same && b.num_elements() == 1 && b.rank() <= a.rank();
  if (!same && !info_.broadcasts) {
    return invalid_argument("inputs must have one shape: ", a.shape(), " and ", b.shape());
  }
  if (!same && !a_repeats && !b_repeats) return compute_broadcast(ctx);

  const Shape shape = a_repeats ? b.shape() : a.shape();
  const int64_t n = shape.num_elements();
  if (n > 0) MR_TRY(check_operand(info_.check, b));
  const char* x = static_cast<const char*>(a.raw());
  const char* y = static_cast<const char*>(b.raw());
  MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0, 1}, 0, shape));
  char* z = static_cast<char*>(out->mutable_raw());
  if (n == 1) {
    function_(x, y, z, 1);
    return ok_status();
  }
  const size_t in_size = dtype_size(dtype_);
  const size_t out_size = dtype_size(out->dtype());
  for_range(ctx, n, info_.cost, [&](int64_t begin, int64_t end) {
    const int64_t x_step = a_repeats ? 0 : 1, y_step = b_repeats ? 0 : 1;
    stepped_loop(function_, x + x_step * begin * static_cast<int64_t>(in_size), x_step,
                 y + y_step * begin * static_cast<int64_t>(in_size), y_step, in_size,
                 z + static_cast<size_t>(begin) * out_size, out_size, end - begin);
  });
  return ok_status();
}

Status BinaryKernel::compute_broadcast(KernelContext& ctx) const {
  Result<BroadcastPlan> made = BroadcastPlan::make({&ctx.input(0).shape(), &ctx.input(1).shape()});
  if (!made.ok()) {
    if (!unequal_shapes_compare_) return made.status();
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
    out->mutable_data<bool>()[0] = std::string_view(info_.name) == "NotEqual";
    return ok_status();
  }
  const BroadcastPlan& plan = *made;
  const int64_t n = plan.shape().num_elements();
  if (n > 0) MR_TRY(check_operand(info_.check, ctx.input(1)));
  const void* x = ctx.input(0).raw();
  const void* y = ctx.input(1).raw();
  MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0, 1}, 0, plan.shape()));
  void* z = out->mutable_raw();
  const size_t in_size = dtype_size(dtype_);
  const size_t out_size = dtype_size(out->dtype());
  for_range(ctx, n, info_.cost, [&](int64_t begin, int64_t end) {
    broadcast_range(plan, function_, x, y, in_size, z, out_size, begin, end);
  });
  return ok_status();
}

OpSpec elementwise_spec(const OpInfo& info, int num_inputs) {
  OpSpec spec{.name = info.name, .doc = info.doc};
  const bool only_bool = info.types == TypeSet{DType::kBool};
  const std::string type = only_bool ? "bool" : "T";
  for (int i = 0; i < num_inputs; ++i) spec.inputs.push_back({info.inputs[i], type});
  const char* output = info.output != nullptr ? info.output : num_inputs == 1 ? "y" : "z";
  spec.outputs.push_back({output, info.predicate ? "bool" : type});
  if (!only_bool) spec.types.push_back({"T", info.types});
  spec.traits.elementwise = true;
  spec.traits.commutative = info.commutative;
  spec.traits.cannot_differentiate = !info.differentiable;
  spec.traits.may_alias = info.predicate && !only_bool ? 0 : (1U << num_inputs) - 1;
  spec.traits.cost = info.cost;
  spec.traits.neutral = info.neutral;
  spec.traits.affine_in = info.affine_in;
  spec.traits.shifted_by = info.shifted_by;
  spec.traits.fused_by = "_FusedElementwise";
  spec.deprecated_since = info.deprecated_since;
  spec.deprecation = info.deprecation;
  return spec;
}

Expr conjugate(Expr x) { return x.valid() && kComplex.contains(x.dtype()) ? call("Conj", {x}) : x; }

}  // namespace millrace
