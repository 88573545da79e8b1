#include "millrace/ops/sparse/sparse_input.h"

#include <algorithm>

#include "millrace/graph/size_rules.h"

namespace millrace {
namespace {

// "indices[1] = [10,2]"
std::string label(const SparseInput& input, int64_t i) {
  return str_cat("indices[", i, "] = [", str_join(input.index(i), ","), "]");
}

// INVALID_ARGUMENT unless the first `dims` of each element's indices lie inside the shape.
Status check_bounds(const SparseInput& input, int dims, std::string_view what) {
  for (int64_t i = 0; i < input.count; ++i) {
    const std::span<const int64_t> index = input.index(i);
    for (int k = 0; k < dims; ++k) {
      const int64_t at = index[static_cast<size_t>(k)];
      if (at >= 0 && at < input.shape.dim(k)) continue;
      return invalid_argument(what, ": ", label(input, i), " is out of bounds: need 0 <= index < ",
                              input.shape);
    }
  }
  return ok_status();
}

// The sparse tensor of three inputs; its indices may lie anywhere.
Result<SparseInput> read_anywhere(KernelContext& ctx, int first, std::string_view what) {
  const Tensor &indices = ctx.input(first), &values = ctx.input(first + 1);
  const Tensor& shape = ctx.input(first + 2);
  if (indices.rank() != 2) {
    return invalid_argument(what, "_indices should be a matrix, but got shape: ", indices.shape());
  }
  if (values.rank() != 1) {
    return invalid_argument(what, "_values should be a vector, but got shape: ", values.shape());
  }
  if (shape.rank() != 1) {
    return invalid_argument(what, "_shape should be a vector, but got shape: ", shape.shape());
  }
  SparseInput input;
  input.count = indices.dim(0);
  if (values.dim(0) != input.count) {
    return invalid_argument(what, "_indices.shape[0] should equal ", what, "_values.shape[0], got ",
                            input.count, " and ", values.dim(0));
  }
  if (shape.dim(0) != indices.dim(1)) {
    return invalid_argument(what, "_indices.shape[1] should equal the length of ", what,
                            "_shape, got ", indices.dim(1), " and ", shape.dim(0));
  }
  MR_TRY_ASSIGN(input.shape, ctx.shape_input(first + 2));
  input.rank = input.shape.rank();
  MR_TRY_ASSIGN(input.indices, Indices::read(ctx, indices));
  input.values = &values;
  return input;
}

}  // namespace

Result<SparseInput> SparseInput::read(KernelContext& ctx, int first, std::string_view what) {
  MR_TRY_ASSIGN(SparseInput input, read_anywhere(ctx, first, what));
  MR_TRY(check_bounds(input, input.rank, what));
  return input;
}

Result<SparseInput> SparseInput::read_rows(KernelContext& ctx, int first, std::string_view what) {
  MR_TRY_ASSIGN(SparseInput input, read_anywhere(ctx, first, what));
  MR_TRY(check_bounds(input, input.rank - 1, what));
  return input;
}

Status SparseInput::check_order() const {
  for (int64_t i = 1; i < count; ++i) {
    const std::span<const int64_t> before = index(i - 1), now = index(i);
    if (std::lexicographical_compare(before.begin(), before.end(), now.begin(), now.end())) {
      continue;
    }
    return invalid_argument(label(*this, i), std::equal(before.begin(), before.end(), now.begin())
                                                 ? " is repeated"
                                                 : " is out of order");
  }
  return ok_status();
}

Status SparseInput::check_row_order() const {
  for (int64_t i = 1; i < count; ++i) {
    const auto row = [&](int64_t element) {
      return index(element).first(static_cast<size_t>(std::max(rank - 1, 0)));
    };
    const std::span<const int64_t> before = row(i - 1), now = row(i);
    if (std::lexicographical_compare(now.begin(), now.end(), before.begin(), before.end())) {
      return invalid_argument(label(*this, i), " is out of order");
    }
  }
  return ok_status();
}

Shape SparseInput::outer() const {
  return *Shape::make(shape.dims().first(static_cast<size_t>(rank - 1)));
}

int64_t SparseInput::group(int64_t i) const {
  int64_t place = 0;
  const std::span<const int64_t> at = index(i);
  for (int k = 0; k + 1 < rank; ++k) {
    place = place * shape.dim(k) + at[static_cast<size_t>(k)];
  }
  return place;
}

Result<int64_t> sparse_rank(ShapeContext& c, int first) {
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank(first, 2));
  MR_TRY_ASSIGN(const PartialShape values, c.with_rank(first + 1, 1));
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank(first + 2, 1));
  const PartialShape count{indices.dim(0)}, rank{indices.dim(1)};
  MR_TRY(count.merge(values).status());
  MR_TRY_ASSIGN(const PartialShape both, rank.merge(shape));
  MR_TRY(sizes_input(c, first + 2).status());
  return both.dim(0);
}

Status check_row_by_row(int64_t rows) {
  constexpr int64_t kMost = int64_t{1} << 21;
  if (rows <= kMost) return ok_status();
  return resource_exhausted("a sparse tensor of ", rows,
                            " rows is too long to be taken row by row: at most ", kMost);
}

}  // namespace millrace
