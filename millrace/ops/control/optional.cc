// Values that may be missing: what a branch that was not taken saves for its gradient, in graphs
// that TensorFlow wrote.

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/optional_value.h"

namespace millrace {
namespace {

Result<Ref<VariantObject>> decode(std::string_view metadata, std::vector<Tensor> tensors) {
  if (metadata != "0" && metadata != "1") {
    return invalid_argument("an optional begins with 0 or 1, found \"", metadata.substr(0, 16),
                            "\"");
  }
  return Ref<VariantObject>(make_ref<OptionalValue>(metadata == "1", std::move(tensors)));
}

Tensor in_tensor(Ref<VariantObject> object) {
  return Tensor::scalar<Variant>(Variant{std::move(object)});
}

// The optional in input 0; INVALID_ARGUMENT when it is something else.
Result<Ref<OptionalValue>> optional_input(const KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  if (input.dtype() != DType::kVariant || input.num_elements() != 1) {
    return invalid_argument("expected a scalar that holds an optional, got ", input.dtype(), " ",
                            input.shape());
  }
  const Ref<VariantObject>& object = input.item<Variant>().object;
  if (!object || object->type_name() != OptionalValue::kTypeName) {
    return invalid_argument("expected an optional, got ",
                            object ? object->type_name() : std::string_view("nothing"));
  }
  return Ref<OptionalValue>(static_cast<OptionalValue*>(object.get()));
}

Status none(KernelContext& ctx) {
  ctx.set_output(0, in_tensor(make_ref<OptionalValue>(false, std::vector<Tensor>())));
  return ok_status();
}

Status from_value(KernelContext& ctx) {
  std::vector<Tensor> components;
  for (int i = 0; i < ctx.num_inputs(); ++i) components.push_back(ctx.input(i));
  ctx.set_output(0, in_tensor(make_ref<OptionalValue>(true, std::move(components))));
  return ok_status();
}

Status has_value(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<OptionalValue> optional, optional_input(ctx));
  ctx.set_output(0, Tensor::scalar<bool>(optional->has_value()));
  return ok_status();
}

Status check_output_shapes(const std::vector<PartialShape>& shapes, int num_outputs) {
  if (static_cast<int>(shapes.size()) == num_outputs) return ok_status();
  return invalid_argument("attr 'output_shapes' has ", shapes.size(), " shapes for ", num_outputs,
                          " outputs");
}

Status get_value(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<OptionalValue> optional, optional_input(ctx));
  if (!optional->has_value()) return invalid_argument("The given optional does not have a value.");
  const std::vector<Tensor>& components = optional->components();
  if (static_cast<int>(components.size()) != ctx.num_outputs()) {
    return invalid_argument("expected an optional of ", ctx.num_outputs(), " components, got ",
                            components.size());
  }
  MR_TRY_ASSIGN(auto shapes, ctx.node().attr<std::vector<PartialShape>>("output_shapes"));
  MR_TRY(check_output_shapes(shapes, ctx.num_outputs()));
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    const Tensor& component = components[static_cast<size_t>(i)];
    const PartialShape& expected = shapes[static_cast<size_t>(i)];
    if (component.dtype() != ctx.output_type(i) || !expected.compatible(component.shape())) {
      return invalid_argument("component ", i, " is ", component.dtype(), " ", component.shape(),
                              ", expected ", ctx.output_type(i), " ", expected);
    }
    ctx.set_output(i, component);
  }
  return ok_status();
}

Status get_value_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  MR_TRY_ASSIGN(auto shapes, c.attr<std::vector<PartialShape>>("output_shapes"));
  MR_TRY(check_output_shapes(shapes, c.num_outputs()));
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[static_cast<size_t>(i)]);
  return ok_status();
}

// Gradients of optionals are optionals of gradients.
Status from_value_grad(GradientContext& g) {
  if (!g.has_gradient(0)) return ok_status();
  std::vector<DType> types;
  std::vector<PartialShape> shapes;
  for (int i = 0; i < g.num_inputs(); ++i) {
    types.push_back(base_type(g.input_type(i)));
    shapes.push_back(g.input(i).shape());
  }
  std::vector<Expr> parts = call_multi("OptionalGetValue", {g.gradient()},
                                       {{"output_types", types}, {"output_shapes", shapes}});
  for (int i = 0; i < static_cast<int>(parts.size()); ++i) {
    if (has_gradients(types[static_cast<size_t>(i)])) g.set(i, parts[static_cast<size_t>(i)]);
  }
  return ok_status();
}

Status get_value_grad(GradientContext& g) {
  std::vector<Expr> parts;
  for (int i = 0; i < g.num_outputs(); ++i) parts.push_back(g.gradient(i));
  g.set(0, call("OptionalFromValue", parts));
  return ok_status();
}

}  // namespace

void register_optional(Registry& registry) {
  // The decoder is the process's: once for all registries.
  static const Status& decoder =
      *new Status(register_variant_decoder(OptionalValue::kTypeName, decode));
  MR_CHECK_OK(decoder);
  registry.add({.name = "OptionalNone",
                .doc = "An optional without a value.",
                .outputs = {{"optional", "variant"}},
                .traits = {.cannot_differentiate = true},
                .shape = shape_rules::scalar});
  registry.add({.name = "OptionalFromValue",
                .doc = "An optional that holds these tensors.",
                .inputs = {{"components", "list(Toutput_types)"}},
                .outputs = {{"optional", "variant"}},
                .attrs = {{"Toutput_types", "list(type) >= 1"}},
                .traits = {.retains = ~uint32_t{0}},
                .shape = shape_rules::scalar,
                .gradient = from_value_grad});
  registry.add({.name = "OptionalHasValue",
                .doc = "Whether an optional has a value.",
                .inputs = {{"optional", "variant"}},
                .outputs = {{"has_value", "host(bool)"}},
                .traits = {.cannot_differentiate = true},
                .shape = shape_rules::scalar});
  registry.add(
      {.name = "OptionalGetValue",
       .doc = "The tensors that an optional holds; an error when it has none.",
       .inputs = {{"optional", "variant"}},
       .outputs = {{"components", "list(output_types)"}},
       .attrs = {{"output_types", "list(type) >= 1"}, {"output_shapes", "list(shape) >= 1"}},
       .shape = get_value_shape,
       .gradient = get_value_grad});
  for (DeviceKind device : {DeviceKind::kCpu, DeviceKind::kNull}) {
    registry.kernel("OptionalNone", device, none);
    registry.kernel("OptionalFromValue", device, from_value);
    registry.kernel("OptionalHasValue", device, has_value);
    registry.kernel("OptionalGetValue", device, get_value);
  }
}

}  // namespace millrace
