#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

class Constant : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Tensor value, node.attr<Tensor>("value"));
    MR_TRY_ASSIGN(DType dtype, node.attr<DType>("dtype"));
    if (value.dtype() != dtype) {
      return invalid_argument("attribute value is ", value.dtype(), ", but dtype says ", dtype);
    }
    const bool host = !node.host_outputs.empty() && node.host_outputs[0];
    if (node.device != nullptr && node.device->info().own_memory && !host) {
      MR_TRY_ASSIGN(value, copy_from_host(*node.device, value));
    }
    return std::make_unique<Constant>(std::move(value));
  }
  explicit Constant(Tensor value) : value_(std::move(value)) {}

  Status compute(KernelContext& ctx) const override {
    ctx.set_output(0, value_);
    return ok_status();
  }

 private:
  Tensor value_;
};

}  // namespace

void register_constant(Registry& registry) {
  registry.add({.name = "Const",
                .doc = "A tensor that is part of the graph.",
                .outputs = {{"output", "dtype"}},
                .types = {{"dtype", {}}},
                .attrs = {{"value", "tensor"}},
                .traits = {.constant = true, .cannot_differentiate = true}});
  registry.kernel<Constant>("Const", DeviceKind::kAny);
}

}  // namespace millrace
