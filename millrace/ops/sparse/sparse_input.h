#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/indices.h"

namespace millrace {

// A sparse tensor among the inputs of a kernel. Refers to its values.
struct SparseInput {
  Indices indices;  // `rank` for each element
  const Tensor* values = nullptr;
  Shape shape;  // of the whole
  int rank = 0;
  int64_t count = 0;

  // Inputs first, first + 1, first + 2 of a kernel: INVALID_ARGUMENT, naming `what`, unless they
  // have the ranks and sizes of a sparse tensor and all indices lie inside the shape.
  static Result<SparseInput> read(KernelContext& ctx, int first, std::string_view what);
  // The same for kernels that take the elements of a row one after the other, wherever they say
  // they are: the last index of an element may be anything, and is not to be used.
  static Result<SparseInput> read_rows(KernelContext& ctx, int first, std::string_view what);

  std::span<const int64_t> index(int64_t i) const {
    return indices.span().subspan(static_cast<size_t>(i * rank), static_cast<size_t>(rank));
  }
  // INVALID_ARGUMENT unless the indices are sorted and none comes twice.
  Status check_order() const;
  // INVALID_ARGUMENT unless the rows, all indices but the last, are sorted.
  Status check_row_order() const;
  // The shape of all dimensions but the last. There must be one.
  Shape outer() const;
  // The number of the element's place in outer(), counted row by row.
  int64_t group(int64_t i) const;
};

// The shape rule of inputs first, first + 1, first + 2; the rank, or -1 when it is not known.
Result<int64_t> sparse_rank(ShapeContext& c, int first);

// RESOURCE_EXHAUSTED for more rows than can be turned into objects of their own, one by one: each
// takes some hundred bytes, while a shape of any number of them takes eight.
Status check_row_by_row(int64_t rows);

}  // namespace millrace
