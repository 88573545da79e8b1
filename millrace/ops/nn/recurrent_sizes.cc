#include "millrace/ops/nn/recurrent_sizes.h"

#include "millrace/graph/size_rules.h"

namespace millrace {

RecurrentShapes RecurrentShapes::of(const ShapeContext& c, int first, Names names) {
  std::vector<PartialShape> shapes;
  for (size_t i = 0; i < names.size(); ++i) shapes.push_back(c.input(first + static_cast<int>(i)));
  return {std::move(shapes), names};
}

RecurrentShapes RecurrentShapes::of(const KernelContext& ctx, int first, Names names) {
  std::vector<PartialShape> shapes;
  for (size_t i = 0; i < names.size(); ++i) {
    shapes.emplace_back(ctx.input(first + static_cast<int>(i)).shape());
  }
  return {std::move(shapes), names};
}

Result<PartialShape> RecurrentShapes::merge(int i, const PartialShape& expected) {
  const auto at = static_cast<size_t>(i);
  Result<PartialShape> both = expected.merge(shapes_[at]);
  if (both.ok()) return both;
  return invalid_argument(names_[at], " must have shape ", expected, ", got ", shapes_[at]);
}

Status RecurrentShapes::learn_cells(int i, int64_t size, int64_t count) {
  if (size < 0 || sizes_.cells >= 0) return ok_status();
  if (size % count != 0) {
    return invalid_argument(names_[static_cast<size_t>(i)], " must have ", count,
                            " numbers for each unit, got shape ", shape(i));
  }
  sizes_.cells = size / count;
  return ok_status();
}

Status RecurrentShapes::read_inputs(int x, bool sequence, int states, int num_states) {
  const PartialShape expected = PartialShape::of_rank(sequence ? 3 : 2);
  MR_TRY_ASSIGN(const PartialShape given, merge(x, expected));
  const int batch = sequence ? 1 : 0;
  sizes_.steps = sequence ? given.dim(0) : 1;
  sizes_.batch = given.dim(batch);
  sizes_.inputs = given.dim(batch + 1);
  for (int i = states; i < states + num_states; ++i) {
    MR_TRY_ASSIGN(const PartialShape state, merge(i, PartialShape{sizes_.batch, sizes_.cells}));
    sizes_.batch = state.dim(0);
    sizes_.cells = state.dim(1);
  }
  return ok_status();
}

Status RecurrentShapes::read_kernel(int kernel, int64_t gates) {
  MR_TRY_ASSIGN(const int64_t columns, multiply_sizes(gates, sizes_.cells));
  MR_TRY_ASSIGN(PartialShape given, merge(kernel, PartialShape{-1, columns}));
  MR_TRY(learn_cells(kernel, given.dim(1), gates));
  if (given.dim(0) < 0 || sizes_.cells < 0) return ok_status();
  const int64_t inputs = given.dim(0) - sizes_.cells;
  if (inputs < 0 || (sizes_.inputs >= 0 && inputs != sizes_.inputs)) {
    return invalid_argument(names_[static_cast<size_t>(kernel)],
                            " must have a row for each of the ", sizes_.inputs, " inputs and the ",
                            sizes_.cells, " units, got shape ", given);
  }
  sizes_.inputs = inputs;
  return ok_status();
}

Status RecurrentShapes::read_vector(int vector, int64_t count) {
  MR_TRY_ASSIGN(const int64_t size, multiply_sizes(count, sizes_.cells));
  MR_TRY_ASSIGN(const PartialShape given, merge(vector, PartialShape{size}));
  return learn_cells(vector, given.dim(0), count);
}

Status RecurrentShapes::read_any_vector(int vector) {
  return merge(vector, PartialShape::of_rank(1)).status();
}

PartialShape RecurrentShapes::values(bool sequence) const {
  if (sequence) return {sizes_.steps, sizes_.batch, sizes_.cells};
  return {sizes_.batch, sizes_.cells};
}

Status RecurrentShapes::read_values(int first, bool sequence) {
  const int last = sequence ? 2 : 1;
  for (size_t i = static_cast<size_t>(first); i < shapes_.size(); ++i) {
    MR_TRY_ASSIGN(const PartialShape given, merge(static_cast<int>(i), values(sequence)));
    if (sequence) sizes_.steps = given.dim(0);
    sizes_.batch = given.dim(last - 1);
    sizes_.cells = given.dim(last);
  }
  return ok_status();
}

}  // namespace millrace
