#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/tensor/shape.h"
#include "millrace/tensor/tensor.h"

// Boxes within tensors: how partitioned variables lie in checkpoints, and what ops ask for.

namespace tensorflow {
class TensorSliceProto;
}  // namespace tensorflow

namespace millrace {

// A box, one extent for each dimension. An extent may be the whole dimension, whatever its size.
class TensorSlice {
 public:
  static constexpr int64_t kWhole = -1;
  struct Extent {
    int64_t start = 0;
    int64_t length = kWhole;
    friend bool operator==(const Extent&, const Extent&) = default;
  };

  // A scalar's.
  TensorSlice() = default;
  explicit TensorSlice(std::vector<Extent> extents) : extents_(std::move(extents)) {}
  // All of a tensor of that rank.
  static TensorSlice whole(int rank) {
    return TensorSlice(std::vector<Extent>(static_cast<size_t>(rank)));
  }
  // Reads "0,5:-": start,length or - (the whole dimension) for each; INVALID_ARGUMENT otherwise.
  static Result<TensorSlice> parse(std::string_view text);
  // INVALID_ARGUMENT for negative sizes and too many dimensions.
  static Result<TensorSlice> from_proto(const tensorflow::TensorSliceProto& proto);
  void to_proto(tensorflow::TensorSliceProto& proto) const;

  int rank() const { return static_cast<int>(extents_.size()); }
  const std::vector<Extent>& extents() const { return extents_; }

  // The same box of a tensor of shape `shape`, every length a number; INVALID_ARGUMENT when it does
  // not lie within it.
  Result<TensorSlice> within(const Shape& shape) const;
  // Of a box whose lengths are numbers.
  Result<Shape> shape() const;
  // What two such boxes of one rank share; false when nothing.
  static bool intersect(const TensorSlice& a, const TensorSlice& b, TensorSlice& out);

  // "0,5:-".
  std::string to_string() const;
  friend bool operator==(const TensorSlice&, const TensorSlice&) = default;

 private:
  std::vector<Extent> extents_;
};

inline void append_to(std::string& out, const TensorSlice& slice) { out += slice.to_string(); }

// What SaveV2 and RestoreV2 call a shape_and_slice: "10 20 0,5:-", a slice of a tensor of shape
// [10,20].
struct ShapeAndSlice {
  Shape whole;        // of the tensor
  TensorSlice slice;  // as written
  Shape shape;        // of the slice
  // INVALID_ARGUMENT for another text, and for a slice outside of the tensor.
  static Result<ShapeAndSlice> parse(std::string_view text);
};

// No tensor is stored in more slices: they are compared each with each.
inline constexpr size_t kMostSlices = size_t{1} << 14;

// INVALID_ARGUMENT when `box` (lengths are numbers) overlaps one of `others`, slices of a tensor of
// shape `whole` in which they lie; RESOURCE_EXHAUSTED when they would be more than kMostSlices.
Status check_disjoint(const std::vector<TensorSlice>& others, const TensorSlice& box,
                      const Shape& whole);

// Copies those elements of `part`, a slice `from` of some tensor, that lie in its slice `to`, which
// `out` holds. Boxes have numbers for lengths and the tensors their shapes; host memory.
void copy_overlap(const Tensor& part, const TensorSlice& from, const TensorSlice& to, Tensor& out);

// The key under which a slice of a tensor lies in a checkpoint: sorts as name, then place.
std::string slice_key(std::string_view name, const TensorSlice& slice);

}  // namespace millrace
