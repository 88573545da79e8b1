#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/control/summarize.h"

namespace millrace {
namespace {

class Assert : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(int64_t summarize, node.attr<int64_t>("summarize"));
    return std::make_unique<Assert>(summarize);
  }
  explicit Assert(int64_t summarize) : summarize_(summarize) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& condition = ctx.input(0);
    if (condition.num_elements() != 1) {
      return invalid_argument("condition must be a scalar, got ", condition.shape());
    }
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
                .inputs = {{"condition", "bool"}, {"data", "list(T)"}},
                .attrs = {{"T", "list(type) >= 1"},
                          {"summarize", "int = 3", "Elements of each tensor to show; -1: all."}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = shape_rules::no_outputs});
  registry.kernel<Assert>("Assert", DeviceKind::kCpu);
}

}  // namespace millrace
