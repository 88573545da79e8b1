// Rows of a tensor picked, or added to, by index vectors.

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/nd_index.h"
#include "millrace/ops/reduce/segments.h"
#include "millrace/ops/rows.h"

namespace millrace {
namespace {

Status gather_nd_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank_at_least(1, 1));
  const PartialShape& params = c.input(0);
  if (!indices.rank_known() || !params.rank_known()) return ok_status();
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth < 0) return ok_status();
  if (depth > params.rank()) {
    return invalid_argument("index vectors of ", depth,
                            " elements are too long for a tensor of shape ", params);
  }
  std::vector<int64_t> dims(indices.dims().begin(), indices.dims().end() - 1);
  dims.insert(dims.end(), params.dims().begin() + depth, params.dims().end());
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status gather_nd_grad(GradientContext& g) {
  const Expr indices = g.input(1);
  g.set(0, call("ScatterNd", {indices, g.gradient(), shape_of(g.input(0), indices.dtype())}));
  return ok_status();
}

Status gather_nd_cpu(KernelContext& ctx) {
  const Tensor& params = ctx.input(0);
  const Shape& indices = ctx.input(1).shape();
  MR_TRY_ASSIGN(const NdSizes sizes, NdSizes::make(params.shape(), indices));
  if (params.num_elements() == 0 && sizes.count > 0 && sizes.run > 0) {
    return invalid_argument("Requested more than 0 entries, but params is empty. Params shape: ",
                            params.shape());
  }
  HostInts dims;
  for (int i = 0; i + 1 < indices.rank(); ++i) dims.add(indices.dim(i));
  for (int i = sizes.depth; i < params.rank(); ++i) dims.add(params.dim(i));
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims.span()));
  MR_TRY_ASSIGN(const Tensor runs, find_runs(ctx, params.shape(), sizes, ctx.input(1)));
  const int64_t* run = runs.data<int64_t>().data();
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  gather_rows(ctx, params, sizes.count, sizes.run, [run](int64_t i) { return run[i]; }, *out);
  return ok_status();
}

Status scatter_nd_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank_at_least(0, 1));
  MR_TRY(c.with_rank(2, 1).status());
  MR_TRY_ASSIGN(PartialShape shape, sizes_input(c, 2));
  MR_TRY(check_nd_updates(shape, indices, c.input(1)));
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status scatter_nd_grad(GradientContext& g) {
  g.set(1, call("GatherNd", {g.gradient(), g.input(0)}));
  return ok_status();
}

Status scatter_nd_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(2));
  const Tensor& updates = ctx.input(1);
  MR_TRY_ASSIGN(const NdSizes sizes, NdSizes::make(shape, ctx.input(0).shape()));
  MR_TRY(check_nd_updates(shape, ctx.input(0).shape(), updates.shape()));
  MR_TRY_ASSIGN(const Tensor runs, find_runs(ctx, shape, sizes, ctx.input(0)));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  return sum_rows(ctx, updates, {.to = runs.data<int64_t>()}, sizes.run, *out);
}

}  // namespace

void register_gather_nd(Registry& registry) {
  registry.add(
      {.name = "GatherNd",
       .doc = "The parts of params that the index vectors in the last dimension of indices name.",
       .inputs = {{"params", "Tparams"}, {"indices", "Tindices"}},
       .outputs = {{"output", "Tparams"}},
       .types = {{"Tparams", {}}, {"Tindices", kIndexTypes}},
       .traits = {.cost = 1},
       .shape = gather_nd_shape,
       .gradient = gather_nd_grad});
  registry.add({.name = "ScatterNd",
                .doc = "Zeros of the given shape, with updates added where the index vectors say.",
                .inputs = {{"indices", "Tindices"}, {"updates", "T"}, {"shape", "host(Tindices)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Tindices", kIndexTypes}},
                .traits = {.cost = 1},
                .shape = scatter_nd_shape,
                .gradient = scatter_nd_grad});
  registry.kernel("GatherNd", DeviceKind::kCpu, gather_nd_cpu);
  registry.kernel({.op = "ScatterNd",
                   .device = DeviceKind::kCpu,
                   .constraints = {{"T", kNumbers}},
                   .function = scatter_nd_cpu});
}

}  // namespace millrace
