#pragma once

#include "millrace/ops/linalg/gemm.h"
#include "millrace/ops/nn/window_geometry.h"

namespace millrace {

// A two-dimensional convolution with all sizes known.
struct ConvGeometry {
  int64_t batch = 0;
  AxisGeometry height;
  AxisGeometry width;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
};

// The three products of a convolution as implicit GEMM: patches are packed straight from the image,
// the matrix of all patches never exists. Images are NHWC, filters [height, width, in, out]; T is
// float or double; no size is zero. Results do not depend on threads.
template <class T>
Status conv_forward(const ConvGeometry& g, const T* image, const T* filter, T* out,
                    ParallelFor parallel_for);
template <class T>
Status conv_backward_input(const ConvGeometry& g, const T* filter, const T* out_gradient,
                           T* image_gradient, ParallelFor parallel_for);
template <class T>
Status conv_backward_filter(const ConvGeometry& g, const T* image, const T* out_gradient,
                            T* filter_gradient, ParallelFor parallel_for);

}  // namespace millrace
