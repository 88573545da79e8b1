#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"
#include "millrace/ops/nn/window_geometry.h"

namespace millrace {

// A pool over volumes with channels last; of images the depth is 1. Windows are not dilated.
struct PoolVolume {
  AxisGeometry depth;
  AxisGeometry height;
  AxisGeometry width;
  int64_t channels = 0;
};

// One row of the output of one volume, row = z * height.output + y, for channels [from, to), which
// go through vectors. `image` and `dx` point to the first element of the volume, `out` and `dy` to
// the first of the row. The elements of a window are taken in order, and bits are the same for
// every instruction set and however channels are cut. A window that sees nothing gives zeros.
template <class T>
struct PoolLoops {
  // The largest element of every window: NaN is, and of equal ones the first.
  void (*max)(const PoolVolume& g, const T* image, int64_t row, int64_t from, int64_t to, T* out);
  // The mean of every window.
  void (*average)(const PoolVolume& g, const T* image, int64_t row, int64_t from, int64_t to,
                  T* out);
  // Adds dy to the elements of dx where the largest of `image` are.
  void (*max_gradient)(const PoolVolume& g, const T* image, const T* dy, int64_t row, int64_t from,
                       int64_t to, T* dx);
  // The elements of `values`, which is like `image`, where the largest of `image` are.
  void (*at_max)(const PoolVolume& g, const T* image, const T* values, int64_t row, int64_t from,
                 int64_t to, T* out);
  // Adds dy, divided by the size of its window, to every element of the window.
  void (*average_gradient)(const PoolVolume& g, const T* dy, int64_t row, int64_t from, int64_t to,
                           T* dx);
};

}  // namespace millrace
