#pragma once

#include "millrace/ops/nn/conv_gemm.h"

namespace millrace {

// Convolutions whose patches are not packed: tiles read them where they lie, in a copy of the
// images with zeros around them, or in the images where no window reaches over their sides. Those
// of images of few channels, as the first layer of a network is, and those of windows at every
// pixel with a filter that stays in the second-level cache. T is float or double.

// Whether the function of that name below takes a convolution.
template <class T>
bool is_narrow_forward(const ConvGeometry& g);
template <class T>
bool is_narrow_input_gradient(const ConvGeometry& g);
template <class T>
bool is_narrow_filter_gradient(const ConvGeometry& g);

// The same as conv_forward, conv_backward_input and conv_backward_filter. The filter's gradient is
// summed over each of up to 16 parts of the output's rows on its own; the sums are added in order.
template <class T>
Status conv_forward_narrow(const ConvGeometry& g, const T* image, const T* filter, T* out,
                           ParallelFor parallel_for);
template <class T>
Status conv_backward_input_narrow(const ConvGeometry& g, const T* filter, const T* out_gradient,
                                  T* image_gradient, ParallelFor parallel_for);
template <class T>
Status conv_backward_filter_narrow(const ConvGeometry& g, const T* image, const T* out_gradient,
                                   T* filter_gradient, ParallelFor parallel_for);

}  // namespace millrace
