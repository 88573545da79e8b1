#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/control/summarize.h"

namespace millrace {
namespace {

Status check_condition(const PartialShape& condition) {
  const int64_t count = condition.num_elements();
  if (count < 0 || count == 1) return ok_status();
  return invalid_argument("condition must be a scalar, got ", condition);
}

Status assert_shape(ShapeContext& c) { return check_condition(c.input(0)); }

class Assert : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(int64_t summarize, node.attr<int64_t>("summarize"));
    return std::make_unique<Assert>(summarize);
  }
  explicit Assert(int64_t summarize) : summarize_(summarize) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& condition = ctx.input(0);
    MR_TRY(check_condition(condition.shape()));
    if (condition.item<bool>()) return ok_status();
    std::string data;
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      append_to(data, str_cat(" [", summarize(ctx.input(i), summarize_), "]"));
    }
    return invalid_argument("assertion failed:", data);
  }

 private:
  int64_t summarize_;
};

}  // namespace

void register_assert(Registry& registry) {
  registry.add({.name = "Assert",
                .doc = "Fails with the data in the message unless the condition holds.",
                .inputs = {{"condition", "host(bool)"}, {"data", "list(T)"}},
                .attrs = {{"T", "list(type) >= 1"},
                          {"summarize", "int = 3", "Elements of each tensor to show; -1: all."}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = assert_shape});
  registry.kernel<Assert>("Assert", DeviceKind::kCpu);
}

}  // namespace millrace
