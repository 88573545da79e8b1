// Ops that hand their input on as it is, and differ in what they mean to gradients.

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

Status same_facts(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    c.set_output(i, c.input(i));
    c.set_output_resource(i, c.input_facts(i).resource);
  }
  return ok_status();
}

void same_value(ValueContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input(i) != nullptr) c.set_output(i, *c.input(i));
  }
}

Status pass_gradients(GradientContext& g) {
  for (int i = 0; i < g.num_inputs(); ++i) {
    if (g.has_gradient(i)) g.set(i, g.gradient_as_is(i));
  }
  return ok_status();
}

Status refuse_gradient(GradientContext& g) {
  MR_TRY_ASSIGN(std::string message, g.attr<std::string>("message"));
  return failed_precondition("the gradient is explicitly disabled by this PreventGradient",
                             message.empty() ? "" : ": ", message);
}

Status ensure_shape_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape expected, c.attr<PartialShape>("shape"));
  MR_TRY_ASSIGN(PartialShape shape, c.input(0).merge(expected));
  c.set_output(0, std::move(shape));
  c.set_output_resource(0, c.input_facts(0).resource);
  return ok_status();
}

class EnsureShape : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(PartialShape expected, node.attr<PartialShape>("shape"));
    return std::make_unique<EnsureShape>(std::move(expected));
  }
  explicit EnsureShape(PartialShape expected) : expected_(std::move(expected)) {}
  Status compute(KernelContext& ctx) const override {
    const Shape& shape = ctx.input(0).shape();
    if (!expected_.compatible(shape)) {
      return invalid_argument("Shape of tensor ", ctx.node().name, " ", shape,
                              " is not compatible with expected shape ", expected_, ".");
    }
    ctx.set_output_value(0, ctx.take_input(0));
    return ok_status();
  }

 private:
  const PartialShape expected_;
};

Status deep_copy(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, x.shape()));
  copy_elements(x, *y);
  return ok_status();
}

Status forward_all(KernelContext& ctx) {
  for (int i = 0; i < ctx.num_inputs(); ++i) ctx.set_output_value(i, ctx.take_input(i));
  return ok_status();
}

constexpr OpTraits kForwards = {.elementwise = true, .forwards = true, .may_alias = 1};

}  // namespace

void register_identity(Registry& registry) {
  registry.add({.name = "Identity",
                .doc = "The input itself.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .traits = kForwards,
                .shape = same_facts,
                .value = same_value,
                .gradient = pass_gradients});
  registry.add({.name = "IdentityN",
                .doc = "All inputs, once all of them are there.",
                .inputs = {{"input", "list(T)"}},
                .outputs = {{"output", "list(T)"}},
                .attrs = {{"T", "list(type) >= 1"}},
                .traits = {.elementwise = true, .forwards = true, .may_alias = ~0u},
                .shape = same_facts,
                .value = same_value,
                .gradient = pass_gradients});
  registry.add({.name = "RefIdentity",
                .doc = "The variable itself.",
                .inputs = {{"input", "ref(T)"}},
                .outputs = {{"output", "ref(T)"}},
                .types = {{"T", {}}},
                .traits = {.allows_uninitialized_input = true, .forwards = true, .may_alias = 1},
                .shape = same_facts,
                .gradient = pass_gradients});
  registry.add({.name = "StopGradient",
                .doc = "The input itself, which gradients treat as a constant.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .traits = {.elementwise = true,
                           .forwards = true,
                           .cannot_differentiate = true,
                           .same_when_same_shape = true,
                           .may_alias = 1,
                           .fused_by = "_FusedElementwise"},
                .shape = same_facts,
                .value = same_value,
                .no_gradient = "there to stop gradients"});
  registry.add({.name = "PreventGradient",
                .doc = "The input itself; asking for a gradient through it is an error.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"message", "string = ''", "Part of the error."}},
                .traits = kForwards,
                .shape = same_facts,
                .value = same_value,
                .gradient = refuse_gradient});
  registry.add({.name = "EnsureShape",
                .doc = "The input itself; a shape that does not fit is an error.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"shape", "shape"}},
                .traits = {.forwards = true, .may_alias = 1},
                .shape = ensure_shape_shape,
                .value = same_value,
                .gradient = pass_gradients});
  registry.add({.name = "Snapshot",
                .doc = "The input as it is now.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .traits = kForwards,
                .shape = same_facts,
                .value = same_value,
                .gradient = pass_gradients});
  registry.add({.name = "DeepCopy",
                .doc = "The input in memory of its own.",
                .inputs = {{"x", "T"}},
                .outputs = {{"y", "T"}},
                .types = {{"T", {}}},
                .traits = {.stateful = true, .cost = 0.5F},
                .shape = same_facts,
                .gradient = pass_gradients});
  registry.kernel<EnsureShape>("EnsureShape", DeviceKind::kAny);
  registry.kernel("DeepCopy", DeviceKind::kCpu, deep_copy);
  for (const char* op :
       {"Identity", "IdentityN", "RefIdentity", "StopGradient", "PreventGradient", "Snapshot"}) {
    registry.kernel(op, DeviceKind::kAny, forward_all);
  }
}

}  // namespace millrace
