// TensorScatterUpdate, Add and Sub: a tensor with parts of it changed, by index vectors.

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/nd_index.h"
#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/rows.h"

namespace millrace {
namespace {

Status tensor_scatter_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank_at_least(1, 1));
  MR_TRY(check_nd_updates(c.input(0), indices, c.input(2)));
  c.set_output(0, c.input(0));
  return ok_status();
}

Status update_grad(GradientContext& g) {
  const Expr dy = g.gradient(), indices = g.input(1);
  g.set(0, call("TensorScatterUpdate", {dy, indices, zeros_like(g.input(2))}));
  g.set(2, call("GatherNd", {dy, indices}));
  return ok_status();
}

Status add_grad(GradientContext& g) {
  g.set(0, g.gradient_as_is());
  g.set(2, call("GatherNd", {g.gradient(), g.input(1)}));
  return ok_status();
}

Status sub_grad(GradientContext& g) {
  g.set(0, g.gradient_as_is());
  g.set(2, -call("GatherNd", {g.gradient(), g.input(1)}));
  return ok_status();
}

// `function` is empty where parts are replaced.
Status tensor_scatter(KernelContext& ctx, const BinaryFunction& function) {
  const Tensor x = ctx.input(0);
  const Tensor& updates = ctx.input(2);
  MR_TRY_ASSIGN(const NdSizes sizes, NdSizes::make(x.shape(), ctx.input(1).shape()));
  MR_TRY(check_nd_updates(x.shape(), ctx.input(1).shape(), updates.shape()));
  MR_TRY_ASSIGN(const Tensor runs, find_runs(ctx, x.shape(), sizes, ctx.input(1)));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, x.shape()));
  copy_elements(x, *out);
  scatter_rows(ctx, function, updates, runs.data<int64_t>(), sizes.run, *out);
  return ok_status();
}

Status update_cpu(KernelContext& ctx) { return tensor_scatter(ctx, BinaryFunction()); }
Status add_cpu(KernelContext& ctx) {
  return tensor_scatter(ctx, BinaryFunction(Add::info, ctx.input(0).dtype()));
}
Status sub_cpu(KernelContext& ctx) {
  return tensor_scatter(ctx, BinaryFunction(Sub::info, ctx.input(0).dtype()));
}

}  // namespace

void register_tensor_scatter(Registry& registry) {
  const auto add = [&](const char* name, const char* doc, GradientRule gradient, TypeSet kernels,
                       KernelFunction function, const char* tensor = "tensor") {
    registry.add({.name = name,
                  .doc = doc,
                  .inputs = {{tensor, "T"}, {"indices", "Tindices"}, {"updates", "T"}},
                  .outputs = {{"output", "T"}},
                  .types = {{"T", {}}, {"Tindices", kIndexTypes}},
                  .traits = {.cost = 1},
                  .shape = tensor_scatter_shape,
                  .gradient = gradient});
    KernelDef kernel{.op = name, .function = function};
    if (!kernels.empty()) kernel.constraints = {{"T", kernels}};
    registry.kernel(kernel);
  };
  add("TensorScatterUpdate", "The tensor with the parts that indices name replaced.", update_grad,
      {}, update_cpu);
  add("TensorScatterAdd", "The tensor with updates added where indices say.", add_grad, kNumbers,
      add_cpu);
  add("TensorScatterSub", "The tensor with updates subtracted where indices say.", sub_grad,
      kNumbers, sub_cpu);
  add("ScatterNdNonAliasingAdd", "The tensor with updates added where indices say.", add_grad,
      kNumbers, add_cpu, "input");
}

}  // namespace millrace
