#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/strided_copy.h"

namespace millrace {
namespace {

// The size of the slice along dimension `i`, of which `dim` is the size; `size` of -1 means the
// rest.
Result<int64_t> slice_size(int i, int64_t dim, int64_t begin, int64_t size) {
  if (begin < 0 || begin > dim) {
    return invalid_argument("'begin' must be in [0, ", dim, "] in dimension ", i, ", got ", begin);
  }
  if (size == -1) return dim - begin;
  if (size < 0 || size > dim - begin) {
    return invalid_argument("'size' must be in [0, ", dim - begin, "] in dimension ", i,
                            ", where 'begin' is ", begin, ", got ", size);
  }
  return size;
}

std::optional<int64_t> element(const std::optional<PartialValue>& value, int i) {
  return value ? value->elements[static_cast<size_t>(i)] : std::nullopt;
}

Status slice_shape(ShapeContext& c) {
  PartialShape all = PartialShape::of_rank(1);
  MR_TRY_ASSIGN(all, all.merge(c.input(1)));
  MR_TRY_ASSIGN(all, all.merge(c.input(2)));
  if (c.input(0).rank_known()) {
    Result<PartialShape> both = all.merge(PartialShape({c.input(0).rank()}));
    if (!both.ok()) {
      return invalid_argument("'begin' and 'size' must have one element per dimension of ",
                              c.input(0), ", got ", all);
    }
    all = std::move(both).value();
  }
  if (!all.dim_known(0)) return ok_status();
  if (all.dim(0) > Shape::kMaxRank)
    return invalid_argument("'begin' has ", all.dim(0), " elements");
  const int rank = static_cast<int>(all.dim(0));
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank(0, rank));
  PartialShape out = PartialShape::of_rank(rank);
  for (int i = 0; i < rank; ++i) {
    const auto begin = element(c.input_facts(1).value, i),
               size = element(c.input_facts(2).value, i);
    if (shape.dim_known(i) && begin && size) {
      MR_TRY_ASSIGN(const int64_t n, slice_size(i, shape.dim(i), *begin, *size));
      out.set_dim(i, n);
    } else if (size && *size >= 0) {
      out.set_dim(i, *size);
    } else if (size && *size < -1) {
      return invalid_argument("'size' must be -1 or more, got ", *size, " in dimension ", i);
    }
  }
  MR_TRY_ASSIGN(out, PartialShape::make(out.dims()));
  c.set_output(0, std::move(out));
  return ok_status();
}

void slice_value(ValueContext& c) {
  const PartialValue *value = c.input(0), *begin = c.input(1), *size = c.input(2);
  if (value == nullptr || begin == nullptr || size == nullptr) return;
  if (value->is_scalar) return c.set_output(0, *value);
  if (!begin->elements[0] || !size->elements[0]) return;
  const Result<int64_t> n = slice_size(0, static_cast<int64_t>(value->elements.size()),
                                       *begin->elements[0], *size->elements[0]);
  if (!n.ok()) return;
  const auto first = value->elements.begin() + *begin->elements[0];
  c.set_output(0, {.elements = {first, first + *n}});
}

// Zeros around the gradient: begin before it, what was left of the input after it.
Status slice_grad(GradientContext& g) {
  const Expr begin = g.input(1);
  const Expr after =
      shape_of(g.input(0), begin.dtype()) - shape_of(g.output(0), begin.dtype()) - begin;
  const Expr one = int32_scalar(g.builder(), 1);
  const Expr paddings = concat({expand_dims(begin, one), expand_dims(after, one)}, 1);
  g.set(0, call("Pad", {g.gradient(), paddings}));
  return ok_status();
}

Status slice_cpu(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  const int rank = input.rank();
  const Shape &begin_shape = ctx.input(1).shape(), &size_shape = ctx.input(2).shape();
  if (!(begin_shape == Shape{rank}) || !(size_shape == Shape{rank})) {
    return invalid_argument("Expected begin and size arguments to be 1-D tensors of size ", rank,
                            ", but got shapes ", begin_shape, " and ", size_shape);
  }
  HostInts begin, size;
  MR_TRY(begin.read(ctx, 1, "begin"));
  MR_TRY(size.read(ctx, 2, "size"));
  bool rows_only = true;
  for (int i = 0; i < rank; ++i) {
    MR_TRY_ASSIGN(size[i], slice_size(i, input.dim(i), begin[i], size[i]));
    rows_only &= i == 0 || size[i] == input.dim(i);
  }
  MR_TRY_ASSIGN(const Shape shape, Shape::make(size.span()));
  if (rows_only) {
    if (rank == 0) {
      ctx.set_output_value(0, ctx.take_input(0));
    } else {
      ctx.set_output(0, input.rows(begin[0], begin[0] + size[0]));
    }
    return ok_status();
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  if (shape.num_elements() == 0) return ok_status();
  StridedCopy copy;
  int64_t from_stride = input.num_elements(), to_stride = shape.num_elements(), offset = 0;
  for (int i = 0; i < rank; ++i) {
    from_stride /= input.dim(i);
    to_stride /= size[i];
    offset += begin[i] * from_stride;
    copy.add_dim(size[i], from_stride, to_stride);
  }
  copy.run(ctx, input, offset, *out, 0);
  return ok_status();
}

}  // namespace

void register_slice(Registry& registry) {
  registry.add(
      {.name = "Slice",
       .doc = "The box of `size` elements at `begin`; a size of -1 means all that is left.",
       .inputs = {{"input", "T"}, {"begin", "host(Index)"}, {"size", "host(Index)"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", {}}, {"Index", kIndexTypes}},
       .traits = {.same_when_same_shape = true,
                  .may_alias = 1,
                  .cost = 0.5F,
                  .each_dimension_in = "begin,size"},
       .shape = slice_shape,
       .value = slice_value,
       .gradient = slice_grad});
  registry.kernel("Slice", DeviceKind::kCpu, slice_cpu);
}

}  // namespace millrace
