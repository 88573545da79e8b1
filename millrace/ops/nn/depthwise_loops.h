#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"
#include "millrace/ops/nn/window_geometry.h"

namespace millrace {

// A depthwise convolution of NHWC images with as many channels as the output, each with a filter of
// its own: filters are [height, width, channels].
struct DepthwiseGeometry {
  int64_t batch = 0;
  AxisGeometry height;
  AxisGeometry width;
  int64_t channels = 0;

  int64_t image_size() const { return height.input * width.input * channels; }
  int64_t output_size() const { return height.output * width.output * channels; }
  int64_t filter_size() const { return height.window * width.window * channels; }
};

// One row of each of the three products, channels in vectors. Bits are the same for every
// instruction set.
template <class T>
struct DepthwiseLoops {
  // Row `oy` of the output of one image.
  void (*forward)(const DepthwiseGeometry& g, const T* image, const T* filter, int64_t oy, T* row);
  // Row `iy` of the gradient of one image, from the whole gradient of its output.
  void (*backward_input)(const DepthwiseGeometry& g, const T* filter, const T* dy, int64_t iy,
                         T* row);
  // Adds to `sums` (a filter) what row `oy` of the gradient of one image's output gives.
  void (*backward_filter)(const DepthwiseGeometry& g, const T* image, const T* dy_row, int64_t oy,
                          T* sums);
};

}  // namespace millrace
