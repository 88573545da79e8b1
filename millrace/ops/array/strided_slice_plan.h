#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "millrace/base/status.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// The bit masks of StridedSlice: bit i speaks of entry i of begin, end and strides.
struct StridedSliceMasks {
  int64_t begin = 0;        // begin[i] is ignored: the slice starts at the edge
  int64_t end = 0;          // end[i] is ignored: the slice goes to the edge
  int64_t ellipsis = 0;     // entry i stands for as many whole dimensions as are left over
  int64_t new_axis = 0;     // entry i inserts a dimension of size 1
  int64_t shrink_axis = 0;  // entry i takes the element at begin[i]; the dimension goes
};

// What a strided slice means for an input of a given shape: the one reading of begin, end, strides
// and masks, for shape rule, value rule, kernels and gradient. Lives on the stack.
class StridedSlicePlan {
 public:
  // An element of begin, end or strides that is not known. The same number given by a user means
  // what its neighbour means: further out than any size.
  static constexpr int64_t kUnknown = std::numeric_limits<int64_t>::min();
  // More entries than masks have bits for are refused.
  static constexpr int kMaxEntries = 62;

  // `input` holds the sizes of the input, -1 where unknown. The three lists must be of one length.
  // INVALID_ARGUMENT for a stride of 0, an index out of bounds, too many entries.
  Status make(std::span<const int64_t> input, std::span<const int64_t> begin,
              std::span<const int64_t> end, std::span<const int64_t> strides,
              const StridedSliceMasks& masks);

  // Per dimension of the input: where the slice begins, the step, and how many elements it takes
  // (-1: unknown; then begin and stride mean nothing).
  int input_rank() const { return input_rank_; }
  int64_t begin(int i) const { return dims_[i].begin; }
  int64_t stride(int i) const { return dims_[i].stride; }
  int64_t size(int i) const { return dims_[i].size; }
  // The output's sizes, -1 where unknown.
  std::span<const int64_t> output() const { return {output_, static_cast<size_t>(output_rank_)}; }

 private:
  struct Dim {
    int64_t begin, stride, size;
  };
  int input_rank_ = 0;
  int output_rank_ = 0;
  Dim dims_[Shape::kMaxRank];
  int64_t output_[Shape::kMaxRank + kMaxEntries];
};

}  // namespace millrace
