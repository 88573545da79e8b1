#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// What batch normalisation does over [rows, channels] (NHWC: a row is a pixel) and over one channel
// of an image in NCHW (n elements in a row). Sums are made in an order that depends on the sizes
// alone; bits are the same for every instruction set. Pointers to rows of channels never overlap.
template <class T>
struct BatchNormLoops {
  // Mean and sum of squared distances from it, of `count` rows so far, made those of `rows` more.
  // `scratch`: 2 * channels.
  void (*add_statistics)(const T* x, int64_t rows, int64_t channels, int64_t count, T* scratch,
                         T* mean, T* squares);
  // y = (x - mean) * scale + offset.
  void (*normalize)(const T* x, int64_t rows, int64_t channels, const T* mean, const T* scale,
                    const T* offset, T* y);
  // Adds dy and dy * (x - mean) to two sums.
  void (*add_products)(const T* dy, const T* x, int64_t rows, int64_t channels, const T* mean,
                       T* sum, T* product);
  // dx = (dy - shift - (x - mean) * slope) * scale.
  void (*differentiate)(const T* dy, const T* x, int64_t rows, int64_t channels, const T* mean,
                        const T* shift, const T* slope, const T* scale, T* dx);

  // The same along one channel.
  void (*add_plane_statistics)(const T* x, int64_t n, int64_t count, T* mean, T* squares);
  void (*normalize_plane)(const T* x, int64_t n, T mean, T scale, T offset, T* y);
  void (*add_plane_products)(const T* dy, const T* x, int64_t n, T mean, T* sum, T* product);
  void (*differentiate_plane)(const T* dy, const T* x, int64_t n, T mean, T shift, T slope, T scale,
                              T* dx);
};

}  // namespace millrace
