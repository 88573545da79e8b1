#include "millrace/ops/linalg/matrix_kernel.h"

namespace millrace {

Result<Matrices> read_matrices(const Tensor& tensor, bool square) {
  const int rank = tensor.rank();
  if (rank < 2) return invalid_argument("matrices must have rank 2 or more, got ", tensor.shape());
  Matrices m{.rows = tensor.dim(rank - 2), .columns = tensor.dim(rank - 1)};
  if (square && m.rows != m.columns) {
    return invalid_argument("matrices must be square, got ", tensor.shape());
  }
  m.count = 1;
  for (int i = 0; i + 2 < rank; ++i) m.count *= tensor.dim(i);
  return m;
}

Result<Shape> with_matrix(const Shape& shape, int64_t rows, int64_t columns) {
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end() - 2);
  dims.push_back(rows);
  dims.push_back(columns);
  return Shape::make(dims);
}

PartialShape with_last_dims(const PartialShape& shape, int drop,
                            std::initializer_list<int64_t> dims) {
  if (!shape.rank_known()) return {};
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i + drop < shape.rank(); ++i) out.add_dim(shape.dim(i));
  for (int64_t dim : dims) out.add_dim(dim);
  return out;
}

Result<PartialShape> square_matrices(const ShapeContext& c, int input) {
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank_at_least(input, 2));
  if (!shape.rank_known()) return shape;
  const int64_t rows = shape.dim(shape.rank() - 2), columns = shape.dim(shape.rank() - 1);
  if (rows >= 0 && columns >= 0 && rows != columns) {
    return invalid_argument("matrices must be square, got ", shape);
  }
  const int64_t n = std::max(rows, columns);
  return with_last_dims(shape, 2, {n, n});
}

OpSpec older_matrix_op(OpSpec spec, TypeSet types, int since) {
  spec.deprecation = str_cat("Use ", spec.name, " instead.");
  spec.name = str_cat("Batch", spec.name);
  spec.types = {{"T", types}};
  spec.deprecated_since = since;
  return spec;
}

}  // namespace millrace
