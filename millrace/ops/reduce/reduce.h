#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/reduce/fold.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// A shape seen by a reduction: dimensions of size 1 are dropped and neighbours that are both kept
// or both reduced are merged, so kept and reduced sizes alternate. Large: lives on the stack.
class ReduceDims {
 public:
  ReduceDims() {}  // NOLINT(modernize-use-equals-default): the sizes stay uninitialised
  ReduceDims(const ReduceDims&) = delete;
  ReduceDims& operator=(const ReduceDims&) = delete;

  // Appends a dimension inside those there are.
  void add(int64_t size, bool reduced);
  // Takes reduced dimension i out; what is left around it becomes one.
  void remove(int i);

  int count() const { return count_; }
  int64_t size(int i) const { return sizes_[i]; }
  bool reduced(int i) const { return (i % 2 == 0) == first_reduced_; }
  // The reduced dimension with most elements; -1 when there is none.
  int largest_reduced() const;
  // How many there are.
  int num_reduced() const { return first_reduced_ ? (count_ + 1) / 2 : count_ / 2; }
  // The product of the sizes of dimensions [begin, end).
  int64_t product(int begin, int end) const;

 private:
  bool first_reduced_ = false;
  int count_ = 0;
  int64_t sizes_[Shape::kMaxRank + 1];  // one more for the two parts of a complex number
};

// Reads the axes (int32 or int64, rank 0 or 1; each in [-rank, rank), none twice: INVALID_ARGUMENT
// otherwise) of a reduction of `shape`: the merged dimensions, and the shape of the result, in
// which reduced dimensions are gone or, with keep_dims, of size 1.
Result<Shape> read_reduction(const Tensor& axes, const Shape& shape, bool keep_dims,
                             ReduceDims& dims);
// The same for shape rules: the shape of the result as far as it is known. Null `axes`: they are
// not known.
Result<PartialShape> reduced_shape(const PartialShape& x, const PartialShape& axes_shape,
                                   const std::optional<std::vector<int64_t>>& axes, bool keep_dims);

// Elements to be folded as A: as they lie in memory, or converted block by block.
template <class A>
struct FoldSource {
  using Convert = void (*)(const void* from, int64_t n, A* to);

  const void* data;
  size_t element_size = sizeof(A);
  Convert convert = nullptr;  // null: the elements are of type A
};

// Folds the reduced dimensions of `x` and writes the result, in the order of the kept ones, to
// `out`. No size is zero, at least one dimension is reduced. `dims` is used up. Work is cut into
// blocks by sizes alone and partial results are folded as a tree: results do not depend on the
// number of threads, and the error of a sum grows with the logarithm of the number of elements. For
// A = float, double, int64_t, Complex64, Complex128.
template <class A>
Status reduce(KernelContext& ctx, FoldOp op, const FoldSource<A>& x, ReduceDims& dims, A* out);

enum class Reduction : uint8_t;  // folded_elements.h

// What the op of that kind gives for `x`, numbers or truth values, over the reduced dimensions,
// written to `out`, of the same type. `dims` is used up.
Status fold_tensor(KernelContext& ctx, Reduction kind, const Tensor& x, ReduceDims& dims,
                   Tensor& out);

// The sum of `x`, numbers of any type, over the reduced dimensions, as the op Sum has it, written
// to `out`, of the same type. `dims` is used up.
Status sum_tensor(KernelContext& ctx, const Tensor& x, ReduceDims& dims, Tensor& out);

}  // namespace millrace
