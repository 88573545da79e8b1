#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/strided_copy.h"

namespace millrace {
namespace {

Result<int64_t> padded_size(int i, int64_t dim, int64_t before, int64_t after) {
  if (before < 0 || after < 0) {
    return invalid_argument("paddings must be non-negative, got ", before, " and ", after,
                            " in dimension ", i);
  }
  int64_t size;
  if (__builtin_add_overflow(dim, before, &size) || __builtin_add_overflow(size, after, &size)) {
    return invalid_argument("dimension ", i, " of size ", dim, " becomes too large with paddings ",
                            before, " and ", after);
  }
  return size;
}

// paddings is [rank,2]; input 2, where there is one, a scalar.
Status pad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape paddings, c.with_rank(1, 2));
  if (paddings.dim_known(1) && paddings.dim(1) != 2) {
    return invalid_argument("'paddings' must have shape [rank,2], got ", paddings);
  }
  if (c.num_inputs() > 2) MR_TRY(c.with_rank(2, 0).status());
  int rank = c.input(0).rank();
  if (paddings.dim_known(0)) {
    if ((rank >= 0 && rank != paddings.dim(0)) || paddings.dim(0) > Shape::kMaxRank) {
      return invalid_argument("'paddings' must have one row per dimension of ", c.input(0),
                              ", got ", paddings);
    }
    rank = static_cast<int>(paddings.dim(0));
  }
  if (rank < 0) return ok_status();
  PartialShape out = PartialShape::of_rank(rank);
  const Tensor* constant = c.input_facts(1).constant;
  if (constant != nullptr && c.input(0).rank_known()) {
    for (int i = 0; i < rank; ++i) {
      if (!c.input(0).dim_known(i)) continue;
      MR_TRY_ASSIGN(const int64_t size, padded_size(i, c.input(0).dim(i), int_at(*constant, 2 * i),
                                                    int_at(*constant, 2 * i + 1)));
      out.set_dim(i, size);
    }
    MR_TRY_ASSIGN(out, PartialShape::make(out.dims()));
  }
  c.set_output(0, std::move(out));
  return ok_status();
}

Expr sum_all(Expr x) {
  if (!x.valid()) return x;
  OpBuilder& b = *x.builder();
  return sum(x, range(int32_scalar(b, 0), rank(x), int32_scalar(b, 1)));
}

Status pad_grad(GradientContext& g) {
  OpBuilder& b = g.builder();
  const Expr paddings = g.input(1), dy = g.gradient();
  const Expr column = call("Slice", {paddings, int32_vector(b, {0, 0}), int32_vector(b, {-1, 1})});
  const Expr before = reshape(column, int32_vector(b, {-1}));
  const Expr dx = call("Slice", {dy, before, shape_of(g.input(0), paddings.dtype())});
  g.set(0, dx);
  if (g.num_inputs() > 2) {
    // What is not x is the constant: picked out, since a difference of two sums would lose it.
    const auto truth = [&](bool value) { return b.constant(Tensor::scalar(value)); };
    const Expr inside = fill(shape_of(g.input(0)), truth(false));
    const Expr added = call("PadV2", {inside, paddings, truth(true)});
    g.set(2, sum_all(select(added, dy, zeros_like(dy))));
  }
  return ok_status();
}

Status pad_cpu(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  const Shape& paddings_shape = ctx.input(1).shape();
  const int rank = input.rank();
  if (!(paddings_shape == Shape{rank, 2})) {
    return invalid_argument(
        "The first dimension of paddings must be the rank of inputs, the second 2: expected ",
        Shape{rank, 2}, " for an input of shape ", input.shape(), ", got ", paddings_shape);
  }
  if (ctx.num_inputs() > 2) MR_TRY(expect_rank(ctx, 2, 0));
  HostInts paddings, sizes;
  MR_TRY(paddings.read(ctx, 1, "paddings"));
  for (int i = 0; i < rank; ++i) {
    MR_TRY_ASSIGN(const int64_t size,
                  padded_size(i, input.dim(i), paddings[2 * i], paddings[2 * i + 1]));
    sizes.add(size);
  }
  MR_TRY_ASSIGN(const Shape shape, Shape::make(sizes.span()));
  MR_TRY_ASSIGN(Tensor * out, forward_or_allocate(ctx, shape));
  if (out == nullptr) return ok_status();
  if (ctx.num_inputs() > 2) {
    fill_tensor(ctx, ctx.input(2), *out);
  } else if (is_plain(out->dtype())) {
    MR_TRY_ASSIGN(const Tensor zero, Tensor::zeros(out->dtype(), Shape()));
    fill_tensor(ctx, zero, *out);
  }
  if (input.num_elements() == 0) return ok_status();
  StridedCopy copy;
  int64_t from_stride = input.num_elements(), to_stride = shape.num_elements(), offset = 0;
  for (int i = 0; i < rank; ++i) {
    from_stride /= input.dim(i);
    to_stride /= shape.dim(i);
    offset += paddings[2 * i] * to_stride;
    copy.add_dim(input.dim(i), from_stride, to_stride);
  }
  copy.run(ctx, input, 0, *out, offset);
  return ok_status();
}

}  // namespace

void register_pad(Registry& registry) {
  registry.add({.name = "Pad",
                .doc = "Zeros before and after the input, in every dimension.",
                .inputs = {{"input", "T"}, {"paddings", "host(Tpaddings)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Tpaddings", kIndexTypes, DType::kInt32}},
                .traits = {.same_when_same_shape = true,
                           .may_alias = 1,
                           .cost = 0.7F,
                           .each_dimension_in = "paddings"},
                .shape = pad_shape,
                .gradient = pad_grad});
  registry.add(
      {.name = "PadV2",
       .doc = "A constant before and after the input, in every dimension.",
       .inputs = {{"input", "T"}, {"paddings", "host(Tpaddings)"}, {"constant_values", "T"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", {}}, {"Tpaddings", kIndexTypes, DType::kInt32}},
       .traits = {.same_when_same_shape = true,
                  .may_alias = 1,
                  .cost = 0.7F,
                  .each_dimension_in = "paddings"},
       .shape = pad_shape,
       .gradient = pad_grad});
  registry.kernel("Pad", DeviceKind::kCpu, pad_cpu);
  registry.kernel("PadV2", DeviceKind::kCpu, pad_cpu);
}

}  // namespace millrace
