#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/indices.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

// What elements of sparse tensors may be.
inline constexpr TypeSet kSparseTypes = type_set_of<ConcatTypes<PlainTypes, TypeList<std::string>>>;

// Which inputs of an op are the parts of a sparse tensor.
struct SparseParts {
  int indices, values, shape;
  static SparseParts from(int first) { return {first, first + 1, first + 2}; }
};

// A sparse tensor among the inputs of a kernel. Refers to its values.
struct SparseInput {
  Indices indices;  // `rank` for each element
  const Tensor* values = nullptr;
  Shape shape;  // of the whole
  int rank = 0;
  int64_t count = 0;

  // INVALID_ARGUMENT, naming `what`, unless the inputs have the ranks and sizes of a sparse tensor
  // and all indices lie inside the shape.
  static Result<SparseInput> read(KernelContext& ctx, SparseParts parts, std::string_view what);
  // The same of inputs first, first + 1 and first + 2.
  static Result<SparseInput> read(KernelContext& ctx, int first, std::string_view what) {
    return read(ctx, SparseParts::from(first), what);
  }
  // The same for kernels that take the elements of a row one after the other, wherever they say
  // they are: the last index of an element may be anything, and is not to be used.
  static Result<SparseInput> read_rows(KernelContext& ctx, int first, std::string_view what);
  // The same without a look at where the indices lie: for those who only compare them.
  static Result<SparseInput> read_unbounded(KernelContext& ctx, SparseParts parts,
                                            std::string_view what);

  std::span<const int64_t> index(int64_t i) const {
    return indices.span().subspan(static_cast<size_t>(i * rank), static_cast<size_t>(rank));
  }
  // INVALID_ARGUMENT unless the indices are sorted and none comes twice.
  Status check_order() const;
  // INVALID_ARGUMENT unless the rows, all indices but the last, are sorted.
  Status check_row_order() const;
  // The elements sorted by their indices: their numbers. Those in one place stay in their order.
  std::vector<int64_t> order() const;
  // The shape of all dimensions but the last. There must be one.
  Shape outer() const;
  // The number of the element's place in outer(), counted row by row.
  int64_t group(int64_t i) const;
};

// The shape rule of a sparse tensor: the shape of its indices, [elements, rank].
Result<PartialShape> sparse_indices_shape(ShapeContext& c, SparseParts parts);
// The rank of the one at inputs first, first + 1, first + 2, or -1 when it is not known.
Result<int64_t> sparse_rank(ShapeContext& c, int first);

// The numbers of `count` indices of `rank` numbers each, sorted; equal ones stay in their order.
std::vector<int64_t> sorted_order(std::span<const int64_t> indices, int rank, int64_t count);

// RESOURCE_EXHAUSTED for more rows than can be turned into objects of their own, one by one: each
// takes some hundred bytes, while a shape of any number of them takes eight.
Status check_row_by_row(int64_t rows);

}  // namespace millrace
