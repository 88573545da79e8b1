// Ops that repeat a tensor along its dimensions.

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/ops/math/broadcast.h"

namespace millrace {
namespace {

Result<int64_t> tiled_size(int i, int64_t dim, int64_t multiple) {
  int64_t size;
  if (multiple < 0 || __builtin_mul_overflow(dim, multiple, &size)) {
    return invalid_argument("multiples[", i, "] must not be negative or too large for size ", dim,
                            ", got ", multiple);
  }
  return size;
}

Status tile_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape count, c.with_rank(1, 1));
  if (c.input(0).rank_known()) {
    Result<PartialShape> both = count.merge(PartialShape({c.input(0).rank()}));
    if (!both.ok()) {
      return invalid_argument("'multiples' must have one element per dimension of ", c.input(0),
                              ", got ", count);
    }
    count = std::move(both).value();
  }
  if (!count.dim_known(0)) return ok_status();
  if (count.dim(0) > Shape::kMaxRank) return invalid_argument("'multiples' is too long: ", count);
  const int rank = static_cast<int>(count.dim(0));
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank(0, rank));
  PartialShape out = PartialShape::of_rank(rank);
  const std::optional<PartialValue>& multiples = c.input_facts(1).value;
  for (int i = 0; i < rank; ++i) {
    const auto m = multiples ? multiples->elements[static_cast<size_t>(i)] : std::nullopt;
    if (!m || !shape.dim_known(i)) continue;
    MR_TRY_ASSIGN(const int64_t size, tiled_size(i, shape.dim(i), *m));
    out.set_dim(i, size);
  }
  MR_TRY_ASSIGN(out, PartialShape::make(out.dims()));
  c.set_output(0, std::move(out));
  return ok_status();
}

void tile_value(ValueContext& c) {
  const PartialValue *value = c.input(0), *multiples = c.input(1);
  if (value == nullptr || multiples == nullptr) return;
  if (value->is_scalar) return c.set_output(0, *value);
  if (!multiples->elements[0]) return;
  const int64_t size = static_cast<int64_t>(value->elements.size());
  // Nothing stays nothing, however often it is repeated.
  const int64_t n = size == 0 ? 0 : *multiples->elements[0];
  if (n < 0 || n > kMaxValueElements) return;
  PartialValue out;
  for (int64_t i = 0; i < n && i * size <= kMaxValueElements; ++i) {
    out.elements.insert(out.elements.end(), value->elements.begin(), value->elements.end());
  }
  c.set_output(0, std::move(out));
}

// The gradient seen as [multiple, size, multiple, size, ...] and summed over the multiples.
Status tile_grad(GradientContext& g) {
  OpBuilder& b = g.builder();
  const Expr multiples = g.input(1);
  const Expr shape = shape_of(g.input(0), multiples.dtype());
  const Expr pairs = call("Pack", {multiples, shape}, {{"axis", 1}});
  const Expr split_shape = reshape(pairs, int32_vector(b, {-1}));
  const Expr axes = range(int32_scalar(b, 0), size_of(split_shape), int32_scalar(b, 2));
  g.set(0, reshape(sum(reshape(g.gradient(), split_shape), axes), shape));
  return ok_status();
}

Status tile_cpu(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  const int rank = input.rank();
  if (!(ctx.input(1).shape() == Shape{rank})) {
    return invalid_argument("Expected multiples to be 1-D, of size ", rank,
                            " for an input of shape ", input.shape(), ", but got shape ",
                            ctx.input(1).shape());
  }
  HostInts multiples, sizes;
  MR_TRY(multiples.read(ctx, 1, "multiples"));
  for (int i = 0; i < rank; ++i) {
    MR_TRY_ASSIGN(const int64_t size, tiled_size(i, input.dim(i), multiples[i]));
    sizes.add(size);
  }
  MR_TRY_ASSIGN(const Shape shape, Shape::make(sizes.span()));
  MR_TRY_ASSIGN(Tensor * out, forward_or_allocate(ctx, shape));
  if (out == nullptr) return ok_status();
  StridedCopy copy;
  int64_t from_stride = input.num_elements(), to_stride = shape.num_elements();
  for (int i = 0; i < rank; ++i) {
    from_stride /= input.dim(i);
    to_stride /= shape.dim(i);
    copy.add_dim(multiples[i], 0, input.dim(i) * to_stride);
    copy.add_dim(input.dim(i), from_stride, to_stride);
  }
  copy.run(ctx, input, 0, *out, 0);
  return ok_status();
}

Status broadcast_to_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 1).status());
  MR_TRY_ASSIGN(PartialShape target, sizes_input(c, 1));
  MR_TRY(check_broadcast_to(c.input(0), target));
  c.set_output(0, std::move(target));
  return ok_status();
}

Status broadcast_to_grad(GradientContext& g) {
  g.set(0, sum_to_shape_of(g.gradient(), g.input(0)));
  return ok_status();
}

Status broadcast_to_cpu(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(1));
  MR_TRY(check_broadcast_to(input.shape(), shape));
  MR_TRY_ASSIGN(Tensor * out, forward_or_allocate(ctx, shape));
  if (out == nullptr) return ok_status();
  StridedCopy copy;
  int64_t from_stride = input.num_elements(), to_stride = shape.num_elements();
  for (int i = 0; i < shape.rank(); ++i) {
    const int own = i - (shape.rank() - input.rank());
    const int64_t dim = own < 0 ? 1 : input.dim(own);
    from_stride /= dim;
    to_stride /= shape.dim(i);
    copy.add_dim(shape.dim(i), dim == 1 ? 0 : from_stride, to_stride);
  }
  copy.run(ctx, input, 0, *out, 0);
  return ok_status();
}

}  // namespace

void register_tile(Registry& registry) {
  registry.add({.name = "Tile",
                .doc = "The input repeated multiples[i] times along dimension i.",
                .inputs = {{"input", "T"}, {"multiples", "host(Tmultiples)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Tmultiples", kIndexTypes, DType::kInt32}},
                .traits = {.same_when_same_shape = true,
                           .may_alias = 1,
                           .cost = 0.5F,
                           .each_dimension_in = "multiples"},
                .shape = tile_shape,
                .value = tile_value,
                .gradient = tile_grad});
  registry.add({.name = "BroadcastTo",
                .doc = "The input repeated to fill a larger shape, by NumPy's rule.",
                .inputs = {{"input", "T"}, {"shape", "host(Tidx)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Tidx", kIndexTypes, DType::kInt32}},
                .traits = {.same_when_same_shape = true,
                           .may_alias = 1,
                           .cost = 0.5F,
                           .fused_by = "_FusedElementwise",
                           .each_dimension_in = "shape"},
                .shape = broadcast_to_shape,
                .gradient = broadcast_to_grad});
  registry.kernel("Tile", DeviceKind::kCpu, tile_cpu);
  registry.kernel("BroadcastTo", DeviceKind::kCpu, broadcast_to_cpu);
}

}  // namespace millrace
