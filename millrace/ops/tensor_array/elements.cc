// One element of a TensorArray at a time.

#include "millrace/kernel/registry.h"
#include "millrace/ops/tensor_array/tensor_array.h"

namespace millrace {
namespace {

Status write_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape element, tensor_array_shape(c, c.input_type(2)));
  MR_TRY(c.with_rank(1, 0).status());
  if (!element.compatible(c.input(2))) {
    return invalid_argument("elements of the TensorArray have shape ", element, ", got ",
                            c.input(2));
  }
  return flow_shape(c);
}

Status read_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape element, tensor_array_shape(c, c.output_type(0)));
  MR_TRY(c.with_rank(1, 0).status());
  c.set_output(0, std::move(element));
  return ok_status();
}

Status write_grad(GradientContext& g) {
  const GradientArray array = gradient_array(g, g.gradient());
  g.set(2, call("TensorArrayReadV3", {array.handle, g.input(1), array.flow},
                {{"dtype", g.input_type(2)}}));
  g.set(3, g.gradient());
  return ok_status();
}

Status read_grad(GradientContext& g) {
  const GradientArray array = gradient_array(g, g.input(2));
  g.set(2, call("TensorArrayWriteV3", {array.handle, g.input(1), g.gradient(), array.flow}));
  return ok_status();
}

Status write(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<TensorArray> array, tensor_array_input(ctx, ctx.input(2).dtype()));
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY_ASSIGN(int32_t index, ctx.scalar_input<int32_t>(1));
  MR_TRY(array->write(index, ctx.take_input(2).tensor));
  pass_flow(ctx);
  return ok_status();
}

Status read(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<TensorArray> array, tensor_array_input(ctx, ctx.output_type(0)));
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY_ASSIGN(int32_t index, ctx.scalar_input<int32_t>(1));
  MR_TRY_ASSIGN(Tensor value, array->read(index));
  ctx.set_output(0, std::move(value));
  return ok_status();
}

}  // namespace

void register_tensor_array_elements(Registry& registry) {
  registry.add({.name = "TensorArrayWriteV3",
                .doc = "Writes one element.",
                .inputs = {{"handle", "resource"},
                           {"index", "host(int32)"},
                           {"value", "T"},
                           {"flow_in", "float"}},
                .outputs = {{"flow_out", "float"}},
                .types = {{"T", {}}},
                .traits = {.stateful = true, .may_alias = 8},
                .shape = write_shape,
                .gradient = write_grad});
  registry.add({.name = "TensorArrayReadV3",
                .doc = "Reads one element.",
                .inputs = {{"handle", "resource"}, {"index", "host(int32)"}, {"flow_in", "float"}},
                .outputs = {{"value", "dtype"}},
                .types = {{"dtype", {}}},
                .traits = {.stateful = true},
                .shape = read_shape,
                .gradient = read_grad});
  registry.kernel("TensorArrayWriteV3", DeviceKind::kCpu, write);
  registry.kernel("TensorArrayReadV3", DeviceKind::kCpu, read);
}

}  // namespace millrace
