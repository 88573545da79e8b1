#pragma once

#include <cstdint>

#include "millrace/kernel/kernel.h"

namespace millrace {

// Copies a box of elements from one strided layout to another: what slicing, joining, padding,
// tiling, transposing and reversing have in common. Strides are in elements; they may be negative,
// and zero where an element is copied many times. No two elements may have the same place in the
// target.
//
// Dimensions are given outermost first, in the order of the target's memory where it is contiguous.
// Neighbours that lie next to each other on both sides become one; contiguous runs are copied
// whole; what is a transposition in memory goes in square tiles.
class StridedCopy {
 public:
  StridedCopy() {}  // NOLINT(modernize-use-equals-default): the array stays uninitialised

  void add_dim(int64_t size, int64_t from_stride, int64_t to_stride);
  // All dimensions of a tensor of this shape in row-major order on both sides.
  void add_dims(const Shape& shape);

  // True when the box is one contiguous run on both sides.
  bool contiguous() const {
    return rank_ == 0 || (rank_ == 1 && dims_[0].from == 1 && dims_[0].to == 1);
  }

  // Copies from element `from_offset` of `from` to element `to_offset` of `to`, on the context's
  // threads or device. The tensors have one dtype, and all elements of the box lie within them.
  // What cannot be enqueued ends the step.
  void run(const KernelContext& ctx, const Tensor& from, int64_t from_offset, Tensor& to,
           int64_t to_offset) const;

 private:
  struct Dim {
    int64_t size, from, to;
  };
  template <class T>
  void run_typed(const KernelContext& ctx, DType dtype, const T* from, T* to, bool stream) const;
  template <class T>
  void run_tiled(const KernelContext& ctx, DType dtype, const T* from, T* to, int across) const;
  // The number of positions in the first `rank` dimensions.
  int64_t outer_count(int rank) const;

  bool empty_ = false;
  int rank_ = 0;
  Dim dims_[2 * Shape::kMaxRank];
};

// Sets all elements of `to`, of a plain type, to zero.
void zero_tensor(const KernelContext& ctx, Tensor& to);

// Sets every element of `to` to the only element of `value`, of the same dtype.
void fill_tensor(const KernelContext& ctx, const Tensor& value, Tensor& to);

// For ops whose output may be the input as it is: sets output 0, to input 0 when that has this
// shape, else to a fresh tensor. Returns the tensor when there are elements to write, null when
// not.
Result<Tensor*> forward_or_allocate(KernelContext& ctx, const Shape& shape);

}  // namespace millrace
