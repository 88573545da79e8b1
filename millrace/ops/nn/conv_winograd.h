#pragma once

#include "millrace/ops/nn/conv_gemm.h"

namespace millrace {

// Convolutions with windows of 3x3 at every pixel by a quarter of the multiplications, of 5x5 by
// 0.36 of them (winograd_gemm.h has the formulas). They round differently from those of
// conv_gemm.h: an element errs by two to five times as much, on the average by less than 7e-8 of
// the sum of the magnitudes of its products. An infinity or NaN reaches all pixels of the tiles
// (4x4, or 2x2) that see it, and sums of products near the largest float may overflow. Results do
// not depend on threads.

// Whether the functions below take a convolution: with windows of 3x3 or 5x5 at steps of 1, of any
// size and padding.
bool fits_winograd(const ConvGeometry& g);

// Whether they take it and are faster than those of conv_gemm.h, by a rule that was measured:
// enough channels and filters, enough tiles, and these filled well enough.
bool winograd_pays_forward(const ConvGeometry& g);
bool winograd_pays_backward_input(const ConvGeometry& g);
bool winograd_pays_backward_filter(const ConvGeometry& g);

// The same as conv_forward(), conv_backward_input() and conv_backward_filter() of conv_gemm.h.
Status conv_forward_winograd(const ConvGeometry& g, const float* image, const float* filter,
                             float* out, ParallelFor parallel_for);
Status conv_backward_input_winograd(const ConvGeometry& g, const float* filter,
                                    const float* out_gradient, float* image_gradient,
                                    ParallelFor parallel_for);
Status conv_backward_filter_winograd(const ConvGeometry& g, const float* image,
                                     const float* out_gradient, float* filter_gradient,
                                     ParallelFor parallel_for);

}  // namespace millrace
