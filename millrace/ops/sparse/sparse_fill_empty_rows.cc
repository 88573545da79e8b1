// A sparse tensor in which each row has an element.

#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/element.h"
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace {
namespace {

Status fill_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape indices, sparse_indices_shape(c, SparseParts::from(0)));
  MR_TRY(c.with_rank(3, 0).status());
  if (indices.dim(1) == 0) return invalid_argument("a sparse tensor of rank 0 has no rows to fill");
  MR_TRY_ASSIGN(const PartialShape shape, c.input_as_shape(2));
  const bool known = shape.rank_known() && shape.rank() > 0;
  c.set_output(0, PartialShape{PartialShape::kUnknownDim, indices.dim(1)});
  c.set_output(1, PartialShape::of_rank(1));
  c.set_output(2, PartialShape{known ? shape.dim(0) : PartialShape::kUnknownDim});
  c.set_output(3, PartialShape{indices.dim(0)});
  return ok_status();
}

Status fill_grad(GradientContext& g) {
  const std::vector<Expr> made =
      call_multi("SparseFillEmptyRowsGrad", {g.output(3), g.gradient(1)});
  if (made.empty()) return g.builder().status();
  g.set(1, made[0]);
  g.set(3, made[1]);
  return ok_status();
}

Status sparse_fill_empty_rows(KernelContext& ctx) {
  MR_TRY_ASSIGN(const SparseInput input, SparseInput::read(ctx, 0, "input"));
  if (input.rank < 1) return invalid_argument("a sparse tensor of rank 0 has no rows to fill");
  if (ctx.input(3).rank() != 0) {
    return invalid_argument("default_value must be a scalar, got shape ", ctx.input(3).shape());
  }
  const int64_t rows = input.shape.dim(0);
  MR_TRY_ASSIGN(Tensor * empty, ctx.allocate_output(2, Shape{rows}));
  MR_TRY_ASSIGN(Tensor * moved, ctx.allocate_output(3, Shape{input.count}));
  MR_TRY_ASSIGN(Tensor starts, ctx.allocate_temp(DType::kInt64, Shape{rows}));
  // First how many elements each row has, then where its next one goes.
  const std::span<int64_t> next = starts.mutable_data<int64_t>();
  std::fill(next.begin(), next.end(), int64_t{0});
  for (int64_t i = 0; i < input.count; ++i) ++next[static_cast<size_t>(input.index(i)[0])];
  const std::span<bool> is_empty = empty->mutable_data<bool>();
  int64_t count = 0;
  for (size_t row = 0; row < next.size(); ++row) {
    is_empty[row] = next[row] == 0;
    const int64_t elements = is_empty[row] ? 1 : next[row];
    next[row] = count;
    count += elements;
  }
  MR_TRY_ASSIGN(const Shape indices_shape, Shape::make(std::vector<int64_t>{count, input.rank}));
  MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(0, indices_shape));
  MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, Shape{count}));
  int64_t* const index = indices->mutable_data<int64_t>().data();
  for (size_t row = 0; row < next.size(); ++row) {
    if (!is_empty[row]) continue;
    std::fill_n(index + next[row] * input.rank, input.rank, int64_t{0});
    index[next[row] * input.rank] = static_cast<int64_t>(row);
  }
  const std::span<int64_t> to = moved->mutable_data<int64_t>();
  for (int64_t i = 0; i < input.count; ++i) {
    const std::span<const int64_t> at = input.index(i);
    const int64_t place = next[static_cast<size_t>(at[0])]++;
    std::copy(at.begin(), at.end(), index + place * input.rank);
    to[static_cast<size_t>(i)] = place;
  }
  with_element(values->dtype(), [&]<class T>() {
    const T* from = static_cast<const T*>(input.values->raw());
    const std::span<T> all(static_cast<T*>(values->mutable_raw()), static_cast<size_t>(count));
    std::fill(all.begin(), all.end(), *static_cast<const T*>(ctx.input(3).raw()));
    for (size_t i = 0; i < to.size(); ++i) all[static_cast<size_t>(to[i])] = from[i];
  });
  return ok_status();
}

Status fill_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape moved, c.with_rank(0, 1));
  MR_TRY(c.with_rank(1, 1).status());
  c.set_output(0, moved);
  c.set_output(1, PartialShape::scalar());
  return ok_status();
}

// The gradient of the rule above: what was picked there is put back, the rest was filled in.
Status fill_grad_grad(GradientContext& g) {
  const Expr rows = shape_of(g.input(1));
  const Expr spread = fill(rows, g.gradient(1));
  const Expr column = expand_dims(g.input(0), int32_scalar(g.builder(), 1));
  g.set(1, call("TensorScatterUpdate", {spread, column, g.gradient(0)}));
  return ok_status();
}

template <class T>
Status sparse_fill_empty_rows_grad(KernelContext& ctx) {
  const Tensor &moved = ctx.input(0), &gradients = ctx.input(1);
  if (moved.rank() != 1 || gradients.rank() != 1) {
    return invalid_argument("reverse_index_map and grad_values must be vectors, got shapes ",
                            moved.shape(), " and ", gradients.shape());
  }
  MR_TRY_ASSIGN(const Indices places,
                Indices::read_below(ctx, moved, gradients.dim(0), "reverse_index_map"));
  MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(0, moved.shape()));
  MR_TRY_ASSIGN(Tensor * filled, ctx.allocate_output(1, Shape{}));
  const std::span<const T> from = gradients.data<T>();
  std::vector<bool> picked(from.size());
  T* to = values->mutable_data<T>().data();
  for (int64_t place : places.span()) {
    picked[static_cast<size_t>(place)] = true;
    *to++ = from[static_cast<size_t>(place)];
  }
  SumType<T> sum{};
  for (size_t i = 0; i < from.size(); ++i) {
    if (!picked[i]) sum = sum + static_cast<SumType<T>>(from[i]);
  }
  filled->mutable_data<T>()[0] = static_cast<T>(sum);
  return ok_status();
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("SparseFillEmptyRowsGrad", DeviceKind::kCpu,
                       &sparse_fill_empty_rows_grad<Ts>),
   ...);
}

}  // namespace

void register_sparse_fill_empty_rows(Registry& registry) {
  registry.add({.name = "SparseFillEmptyRows",
                .doc = "Gives each row without elements one, default_value, in its first place.",
                .inputs = {{"indices", "int64"},
                           {"values", "T"},
                           {"dense_shape", "host(int64)"},
                           {"default_value", "T"}},
                .outputs = {{"output_indices", "int64"},
                            {"output_values", "T"},
                            {"empty_row_indicator", "bool"},
                            {"reverse_index_map", "int64", "Where each element went."}},
                .types = {{"T", kSparseTypes}},
                .traits = {.cost = 20},
                .shape = fill_shape,
                .gradient = fill_grad});
  registry.kernel("SparseFillEmptyRows", DeviceKind::kCpu, sparse_fill_empty_rows);
  registry.add({.name = "SparseFillEmptyRowsGrad",
                .doc = "The gradient of SparseFillEmptyRows.",
                .inputs = {{"reverse_index_map", "int64"}, {"grad_values", "T"}},
                .outputs = {{"d_values", "T"}, {"d_default_value", "T"}},
                .types = {{"T", type_set_of<NumberTypes>}},
                .traits = {.cost = 2},
                .shape = fill_grad_shape,
                .gradient = fill_grad_grad});
  register_kernels(registry, NumberTypes());
}

}  // namespace millrace
