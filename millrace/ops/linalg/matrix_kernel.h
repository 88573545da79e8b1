#pragma once

#include <algorithm>
#include <vector>

#include "millrace/graph/op_def.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/linalg/decompositions.h"

// What ops on the matrices in the last two dimensions of a tensor share.

namespace millrace {

// The matrices of a tensor.
struct Matrices {
  int64_t count = 0, rows = 0, columns = 0;
  int64_t size() const { return rows * columns; }
};

// INVALID_ARGUMENT for a rank below 2, and where `square` for other matrices.
Result<Matrices> read_matrices(const Tensor& tensor, bool square);
// `shape` with other rows and columns; rank >= 2.
Result<Shape> with_matrix(const Shape& shape, int64_t rows, int64_t columns);
// `shape` without its last `drop` dimensions, and `dims` instead.
PartialShape with_last_dims(const PartialShape& shape, int drop,
                            std::initializer_list<int64_t> dims);
// The shape rules of ops on square matrices: INVALID_ARGUMENT for others.
Result<PartialShape> square_matrices(const ShapeContext& c, int input);

// Calls body(i, scratch) for every matrix i, on all threads; `scratch` has `size` numbers of W. The
// first error is returned.
template <class W, class Body>
Status for_each_matrix(KernelContext& ctx, int64_t count, int64_t size, double cost, Body body) {
  const int64_t dims[] = {count, size};
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(Tensor temp, ctx.allocate_temp(dtype_of<W>, shape));
  W* const scratch = temp.mutable_data<W>().data();
  std::vector<Status> errors(static_cast<size_t>(count));
  ctx.parallel_for(count, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      errors[static_cast<size_t>(i)] = body(i, scratch + i * size);
    }
  });
  for (Status& error : errors) MR_TRY(std::move(error));
  return ok_status();
}

// The i-th matrix of `tensor` (elements of T), converted.
template <class T>
void load_matrix(const Tensor& tensor, int64_t i, int64_t size, WideNumber<T>* to) {
  const T* const from = tensor.data<T>().data() + i * size;
  for (int64_t k = 0; k < size; ++k) to[k] = static_cast<WideNumber<T>>(from[k]);
}
template <class T>
void store_matrix(const WideNumber<T>* from, int64_t i, int64_t size, Tensor& tensor) {
  T* const to = tensor.mutable_data<T>().data() + i * size;
  for (int64_t k = 0; k < size; ++k) to[k] = static_cast<T>(from[k]);
}

// `spec` under the name it had in graphs older than version `since`, which knew these types.
OpSpec older_matrix_op(OpSpec spec, TypeSet types, int since);

// Nanoseconds for n^3 multiplications.
inline double cubic_cost(int64_t n) {
  const double d = static_cast<double>(n);
  return d * d * d + 10;
}

}  // namespace millrace
