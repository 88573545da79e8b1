// Sparse tensors with their elements sorted, and in another shape.

#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/rows.h"
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace {
namespace {

Status reorder_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape indices, sparse_indices_shape(c, SparseParts::from(0)));
  c.set_output(0, indices);
  c.set_output(1, PartialShape{indices.dim(0)});
  return ok_status();
}

// Numbers that are sorted along with the elements tell where each of these went.
Status reorder_grad(GradientContext& g) {
  OpBuilder& builder = g.builder();
  const Expr zero = int32_scalar(builder, 0);
  const Expr numbers = range(zero, size_of(g.input(1)), int32_scalar(builder, 1));
  const std::vector<Expr> sorted = call_multi("SparseReorder", {g.input(0), numbers, g.input(2)});
  if (sorted.empty()) return builder.status();
  const Expr place = call("InvertPermutation", {sorted[1]});
  g.set(1, call("GatherV2", {g.gradient(1), place, zero}));
  return ok_status();
}

Status sparse_reorder(KernelContext& ctx) {
  MR_TRY_ASSIGN(const SparseInput input,
                SparseInput::read_unbounded(ctx, SparseParts::from(0), "input"));
  const std::vector<int64_t> order = input.order();
  MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(0, Shape{input.count, input.rank}));
  MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, Shape{input.count}));
  int64_t* to = indices->mutable_data<int64_t>().data();
  for (int64_t i : order) {
    const std::span<const int64_t> index = input.index(i);
    to = std::copy(index.begin(), index.end(), to);
  }
  const auto source = [&](int64_t i) { return order[static_cast<size_t>(i)]; };
  gather_rows(ctx, *input.values, input.count, 1, source, *values);
  return ok_status();
}

// The shape that `wanted`, in which one size may be -1, is of as many elements as `before`.
Result<Shape> resolve(std::span<const int64_t> wanted, const Shape& before) {
  std::vector<int64_t> sizes(wanted.begin(), wanted.end());
  int inferred = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && inferred >= 0) {
      return invalid_argument("only one output shape size may be -1, not both ", inferred, " and ",
                              i);
    }
    if (sizes[i] < -1) {
      return invalid_argument("size ", i, " must be non-negative, not ", sizes[i]);
    }
    if (sizes[i] == -1) {
      inferred = static_cast<int>(i);
      sizes[i] = 1;
    }
  }
  MR_TRY_ASSIGN(Shape shape, Shape::make(sizes));
  const int64_t count = before.num_elements();
  if (inferred >= 0) {
    const int64_t others = shape.num_elements();
    if (others == 0) {
      return invalid_argument(
          "reshape cannot infer the missing input size for an empty tensor unless all specified "
          "input sizes are non-zero");
    }
    if (count % others != 0) {
      return invalid_argument("Input to reshape is a tensor with ", count,
                              " dense values, but the requested shape requires a multiple of ",
                              others, ". input_shape=", before, " output_shape=", shape);
    }
    sizes[static_cast<size_t>(inferred)] = count / others;
    MR_TRY_ASSIGN(shape, Shape::make(sizes));
  }
  if (shape.num_elements() != count) {
    return invalid_argument("Input to reshape is a tensor with ", count,
                            " dense values, but the requested shape has ", shape.num_elements(),
                            ". input_shape=", before, " output_shape=", shape);
  }
  return shape;
}

Status reshape_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank(0, 2));
  MR_TRY_ASSIGN(const PartialShape before, c.with_rank(1, 1));
  MR_TRY_ASSIGN(const PartialShape after, c.with_rank(2, 1));
  MR_TRY(PartialShape{indices.dim(1)}.merge(before).status());
  MR_TRY(sizes_input(c, 1).status());
  const auto sizes = c.input_vector(1), wanted = c.input_vector(2);
  if (sizes && wanted) {
    MR_TRY_ASSIGN(const Shape shape, Shape::make(*sizes));
    MR_TRY(resolve(*wanted, shape).status());
  }
  c.set_output(0, PartialShape{indices.dim(0), after.dim(0)});
  c.set_output(1, after);
  return ok_status();
}

// The shape, with what is known of it.
void reshape_value(ValueContext& c) {
  const PartialValue *before = c.input(1), *wanted = c.input(2);
  if (wanted == nullptr) return;
  PartialValue out = *wanted;
  if (wanted->fully_known() && before != nullptr && before->fully_known()) {
    std::vector<int64_t> sizes, asked;
    for (const auto& size : before->elements) sizes.push_back(*size);
    for (const auto& size : wanted->elements) asked.push_back(*size);
    const Result<Shape> shape = Shape::make(sizes);
    if (!shape.ok()) return;
    const Result<Shape> made = resolve(asked, *shape);
    if (!made.ok()) return;
    out.elements.assign(made->dims().begin(), made->dims().end());
  }
  for (auto& size : out.elements) {
    if (size && *size < 0) size.reset();
  }
  c.set_output(1, std::move(out));
}

Status sparse_reshape(KernelContext& ctx) {
  const Tensor& indices = ctx.input(0);
  if (indices.rank() != 2) {
    return invalid_argument("Input indices should be a matrix but received shape ",
                            indices.shape());
  }
  if (ctx.input(1).rank() != 1 || ctx.input(2).rank() != 1) {
    return invalid_argument("input_shape and new_shape should be vectors but received shapes ",
                            ctx.input(1).shape(), " and ", ctx.input(2).shape());
  }
  MR_TRY_ASSIGN(const Shape before, ctx.shape_input(1));
  if (indices.dim(1) != before.rank()) {
    return invalid_argument("Input tensor rank must match input shape length: indices have ",
                            indices.dim(1), " columns, the shape is ", before);
  }
  MR_TRY_ASSIGN(const std::vector<int64_t> wanted, ctx.int_vector_input(2));
  MR_TRY_ASSIGN(const Shape after, resolve(wanted, before));
  MR_TRY_ASSIGN(const Indices from, Indices::read(ctx, indices));
  const int64_t count = indices.dim(0);
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{count, after.rank()}));
  MR_TRY_ASSIGN(Tensor * shape, ctx.allocate_output(1, Shape{after.rank()}));
  std::copy(after.dims().begin(), after.dims().end(), shape->mutable_data<int64_t>().begin());
  int64_t* to = out->mutable_data<int64_t>().data();
  for (int64_t i = 0; i < count; ++i, to += after.rank()) {
    int64_t place = 0;
    for (int k = 0; k < before.rank(); ++k) {
      const int64_t at = from[i * before.rank() + k];
      if (at < 0 || at >= before.dim(k)) {
        return invalid_argument("indices[", i, ", ", k, "] = ", at, " is not in [0, ",
                                before.dim(k), "), in shape ", before);
      }
      place = place * before.dim(k) + at;
    }
    for (int k = after.rank(); k-- > 0;) {
      to[k] = place % after.dim(k);
      place /= after.dim(k);
    }
  }
  return ok_status();
}

}  // namespace

void register_sparse_reorder(Registry& registry) {
  registry.add({.name = "SparseReorder",
                .doc = "The elements of a sparse tensor, sorted by their indices.",
                .inputs = {{"input_indices", "int64"},
                           {"input_values", "T"},
                           {"input_shape", "host(int64)"}},
                .outputs = {{"output_indices", "int64"}, {"output_values", "T"}},
                .types = {{"T", kSparseTypes}},
                .traits = {.cost = 20},
                .shape = reorder_shape,
                .gradient = reorder_grad});
  registry.kernel("SparseReorder", DeviceKind::kCpu, sparse_reorder);
  registry.add({.name = "SparseReshape",
                .doc = "The indices of a sparse tensor's elements in another shape.",
                .inputs = {{"input_indices", "int64"},
                           {"input_shape", "host(int64)"},
                           {"new_shape", "host(int64)", "One size may be -1."}},
                .outputs = {{"output_indices", "int64"}, {"output_shape", "host(int64)"}},
                .traits = {.cost = 10},
                .shape = reshape_shape,
                .value = reshape_value});
  registry.kernel("SparseReshape", DeviceKind::kCpu, sparse_reshape);
}

}  // namespace millrace
