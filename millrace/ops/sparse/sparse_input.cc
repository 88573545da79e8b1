#include "millrace/ops/sparse/sparse_input.h"

#include <algorithm>
#include <numeric>

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

}  // namespace

Result<SparseInput> SparseInput::read_unbounded(KernelContext& ctx, SparseParts parts,
                                                std::string_view what) {
  const Tensor &indices = ctx.input(parts.indices), &values = ctx.input(parts.values);
  const Tensor& shape = ctx.input(parts.shape);
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
  MR_TRY_ASSIGN(input.shape, ctx.shape_input(parts.shape));
  input.rank = input.shape.rank();
  MR_TRY_ASSIGN(input.indices, Indices::read(ctx, indices));
  input.values = &values;
  return input;
}

Result<SparseInput> SparseInput::read(KernelContext& ctx, SparseParts parts,
                                      std::string_view what) {
  MR_TRY_ASSIGN(SparseInput input, read_unbounded(ctx, parts, what));
  MR_TRY(check_bounds(input, input.rank, what));
  return input;
}

Result<SparseInput> SparseInput::read_rows(KernelContext& ctx, int first, std::string_view what) {
  MR_TRY_ASSIGN(SparseInput input, read_unbounded(ctx, SparseParts::from(first), what));
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

std::vector<int64_t> SparseInput::order() const {
  return sorted_order(indices.span(), rank, count);
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

Result<PartialShape> sparse_indices_shape(ShapeContext& c, SparseParts parts) {
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank(parts.indices, 2));
  MR_TRY_ASSIGN(const PartialShape values, c.with_rank(parts.values, 1));
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank(parts.shape, 1));
  const PartialShape count{indices.dim(0)}, rank{indices.dim(1)};
  MR_TRY_ASSIGN(const PartialShape elements, count.merge(values));
  MR_TRY_ASSIGN(const PartialShape both, rank.merge(shape));
  MR_TRY(sizes_input(c, parts.shape).status());
  return PartialShape{elements.dim(0), both.dim(0)};
}

Result<int64_t> sparse_rank(ShapeContext& c, int first) {
  MR_TRY_ASSIGN(const PartialShape indices, sparse_indices_shape(c, SparseParts::from(first)));
  return indices.dim(1);
}

std::vector<int64_t> sorted_order(std::span<const int64_t> indices, int rank, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto at = [&](int64_t i) {
    return indices.subspan(static_cast<size_t>(i * rank), static_cast<size_t>(rank));
  };
  const auto before = [&](int64_t i, int64_t k) {
    return std::lexicographical_compare(at(i).begin(), at(i).end(), at(k).begin(), at(k).end());
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::stable_sort(order.begin(), order.end(), before);
  }
  return order;
}

Status check_row_by_row(int64_t rows) {
  constexpr int64_t kMost = int64_t{1} << 21;
  if (rows <= kMost) return ok_status();
  return resource_exhausted("a sparse tensor of ", rows,
                            " rows is too long to be taken row by row: at most ", kMost);
}

}  // namespace millrace
