#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/state/register.h"

namespace millrace {
namespace {

Status count_up_to_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape counter, c.with_rank(0, 0));
  c.set_output(0, counter);
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
    if (!cell.tensor.valid()) {
      return failed_precondition("Attempting to use uninitialized value ", cell.name);
    }
    if (cell.tensor.rank() != 0) {
      return invalid_argument("the counter must be a scalar, got ", cell.tensor.shape());
    }
    const T count = cell.tensor.item<T>();
    if (count >= limit_) return out_of_range("Reached limit of ", limit_);
    next.mutable_data<T>()[0] = static_cast<T>(count + 1);
    // Who has read the counter keeps what was read.
    std::swap(cell.tensor, next);
    ctx.set_output(0, std::move(next));
    return ok_status();
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
}

}  // namespace millrace
