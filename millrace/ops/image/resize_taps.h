#pragma once

#include "millrace/graph/attr_value.h"
#include "millrace/kernel/kernel.h"

namespace millrace {

enum class ResizeMethod : uint8_t { kNearest, kBilinear, kBicubic, kArea };

// Where the elements of a resized axis lie on the original one.
struct ResizeCenters {
  bool align_corners = false;
  bool half_pixel = false;
};
// From "align_corners" and, where present, "half_pixel_centers"; INVALID_ARGUMENT for both.
Result<ResizeCenters> read_resize_centers(const AttrMap& attrs);

// A resized axis: element i is the sum of weight(i)[k] times element index(i)[k] of the original
// one, over `taps` of them.
struct ResizeTaps {
  int64_t taps = 1;
  int64_t original = 0;
  int64_t resized = 0;
  Tensor indices;  // int64 [resized * taps]
  Tensor weights;  // float

  const int64_t* index(int64_t i) const { return indices.data<int64_t>().data() + i * taps; }
  const float* weight(int64_t i) const { return weights.data<float>().data() + i * taps; }
};

// Both sizes are positive.
Result<ResizeTaps> make_resize_taps(KernelContext& ctx, ResizeMethod method, ResizeCenters centers,
                                    int64_t original, int64_t resized);

}  // namespace millrace
