#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

Status count_up_to_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape counter, c.with_rank(0, 0));
  c.set_output(0, counter);
  return ok_status();
}

Status resource_count_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape counter, variable_shape(c, 0, c.output_type(0)));
  if (!counter.compatible(Shape())) {
    return invalid_argument("the counter must be a scalar, got ", counter);
  }
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

// Counts on from `counter`, whose lock is held; who has read the counter keeps what was read.
template <class T>
Status count_on(KernelContext& ctx, int64_t limit, Tensor& counter, Tensor next) {
  if (counter.rank() != 0) {
    return invalid_argument("the counter must be a scalar, got ", counter.shape());
  }
  const T count = counter.item<T>();
  if (count >= limit) return out_of_range("Reached limit of ", limit);
  next.mutable_data<T>()[0] = static_cast<T>(count + 1);
  std::swap(counter, next);
  ctx.set_output(0, std::move(next));
  return ok_status();
}

// Always locked: no two runs get the same number.
template <class T>
class CountUpTo : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(int64_t limit, node.attr<int64_t>("limit"));
    return std::make_unique<CountUpTo>(limit);
  }
  explicit CountUpTo(int64_t limit) : limit_(limit) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(Tensor next, ctx.allocate_temp(dtype_of<T>, Shape()));
    RefCell& cell = ctx.input_ref(0);
    MutexLock lock(cell.mu);
    if (!cell.tensor.valid()) return uninitialized_value(cell);
    return count_on<T>(ctx, limit_, cell.tensor, std::move(next));
  }

 private:
  const int64_t limit_;
};

template <class T>
class ResourceCountUpTo : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(int64_t limit, node.attr<int64_t>("limit"));
    return std::make_unique<ResourceCountUpTo>(limit);
  }
  explicit ResourceCountUpTo(int64_t limit) : limit_(limit) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(Ref<ResourceVariable> variable, variable_input(ctx, 0));
    if (variable->dtype() != dtype_of<T>) {
      return invalid_argument("the counter ", variable->name(), " must be of type ", dtype_of<T>,
                              ", it is of ", variable->dtype());
    }
    MR_TRY_ASSIGN(Tensor next, ctx.allocate_temp(dtype_of<T>, Shape()));
    variable->lock();
    Status status = variable->tensor().valid()
                        ? count_on<T>(ctx, limit_, variable->tensor(), std::move(next))
                        : uninitialized_variable(ctx.input(0).item<ResourceHandle>());
    variable->unlock();
    return status;
  }

 private:
  const int64_t limit_;
};

}  // namespace

void register_count_up_to(Registry& registry) {
  registry.add({.name = "CountUpTo",
                .doc = "The variable's value, which is then increased by one; an error at limit.",
                .inputs = {{"ref", "ref(T)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kIndexTypes}},
                .attrs = {{"limit", "int", "Reached: OUT_OF_RANGE."}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = count_up_to_shape});
  registry.kernel<int32_t, CountUpTo<int32_t>>("CountUpTo", DeviceKind::kCpu);
  registry.kernel<int64_t, CountUpTo<int64_t>>("CountUpTo", DeviceKind::kCpu);
  registry.add({.name = "ResourceCountUpTo",
                .doc = "The variable's value, which is then increased by one; an error at limit.",
                .inputs = {{"resource", "resource"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kIndexTypes}},
                .attrs = {{"limit", "int", "Reached: OUT_OF_RANGE."}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = resource_count_shape});
  registry.kernel<int32_t, ResourceCountUpTo<int32_t>>("ResourceCountUpTo", DeviceKind::kCpu);
  registry.kernel<int64_t, ResourceCountUpTo<int64_t>>("ResourceCountUpTo", DeviceKind::kCpu);
}

}  // namespace millrace
