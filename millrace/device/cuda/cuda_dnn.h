#pragma once

#include <span>

#include "millrace/kernel/kernel.h"

namespace millrace {

// A convolution of images with padding that is equal on both sides, by cuDNN. Filters lie as
// [out channels, height, width, in channels] where channels are last, else as [out channels, in
// channels, height, width].
struct CudaConvolution {
  int64_t batch = 0, in_channels = 0, out_channels = 0;
  int64_t input[2] = {}, window[2] = {}, stride[2] = {}, dilation[2] = {}, padding[2] = {},
          output[2] = {};
  bool channels_last = true;
};
enum class CudaConvolutionResult : uint8_t { kOutput, kInput, kFilter };

// Computes one of the three from the other two. UNIMPLEMENTED for what cuDNN has no algorithm for.
Status cuda_convolve(const KernelContext& ctx, DType dtype, CudaConvolutionResult result,
                     const CudaConvolution& sizes, const void* image, const void* filter,
                     const void* output, void* to);

}  // namespace millrace
