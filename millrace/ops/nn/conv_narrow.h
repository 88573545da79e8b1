#pragma once

#include "millrace/ops/nn/conv_gemm.h"

namespace millrace {

// Convolutions of images of few channels, as the first layer of a network is. Patches are not
// packed: tiles read them where they lie, in a copy of the images with zeros around them, or in the
// images where no window reaches over their sides. T is float or double.

// Whether the functions below take a convolution.
template <class T>
bool is_narrow(const ConvGeometry& g);

// The same as conv_forward and conv_backward_filter. The filter's gradient is summed over each of
// up to 16 parts of the output's rows on its own; the sums are added in order.
template <class T>
Status conv_forward_narrow(const ConvGeometry& g, const T* image, const T* filter, T* out,
                           ParallelFor parallel_for);
template <class T>
Status conv_backward_filter_narrow(const ConvGeometry& g, const T* image, const T* out_gradient,
                                   T* filter_gradient, ParallelFor parallel_for);

}  // namespace millrace
