// What stands in for cuBLASLt and cuDNN where kernels are compiled for the host.

#include "millrace/device/cuda/cuda_blas.h"
#include "millrace/device/cuda/cuda_context.h"
#include "millrace/device/cuda/cuda_dnn.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <class T>
using Sum = std::conditional_t<sizeof(T) == 8, double, float>;

}  // namespace

bool cuda_tf32() { return false; }

namespace {

Status multiply(DType dtype, const CudaProduct& s, const void* a, const void* b, void* c) {
  return dispatch<FloatingTypes>(dtype, [&]<class T>() {
    for (int64_t i = 0; i < s.batch; ++i) {
      const T* x = static_cast<const T*>(a) + i * s.stride_a;
      const T* y = static_cast<const T*>(b) + i * s.stride_b;
      T* z = static_cast<T*>(c) + i * s.stride_c;
      for (int64_t row = 0; row < s.m; ++row) {
        for (int64_t column = 0; column < s.n; ++column) {
          Sum<T> sum = 0;
          for (int64_t k = 0; k < s.k; ++k) {
            sum += static_cast<Sum<T>>(x[s.transpose_a ? k * s.m + row : row * s.k + k]) *
                   static_cast<Sum<T>>(y[s.transpose_b ? column * s.k + k : k * s.n + column]);
          }
          z[row * s.n + column] = static_cast<T>(sum);
        }
      }
    }
  });
}

Status convolve(DType dtype, CudaConvolutionResult result, const CudaConvolution& s,
                const void* image, const void* filter, const void* output, void* to) {
  for (int a = 0; a < 2; ++a) {
    const int64_t reach = (s.window[a] - 1) * s.dilation[a] + 1;
    MR_CHECK((s.input[a] + 2 * s.padding[a] - reach) / s.stride[a] + 1 == s.output[a]);
  }
  const auto at = [&](const int64_t* size, int64_t channels, int64_t n, int64_t y, int64_t x,
                      int64_t c) {
    return s.channels_last ? ((n * size[0] + y) * size[1] + x) * channels + c
                           : ((n * channels + c) * size[0] + y) * size[1] + x;
  };
  return dispatch<FloatingTypes>(dtype, [&]<class T>() {
    const bool forward = result == CudaConvolutionResult::kOutput;
    const bool to_input = result == CudaConvolutionResult::kInput;
    const int64_t n_result = forward ? s.batch * s.output[0] * s.output[1] * s.out_channels
                             : to_input
                                 ? s.batch * s.input[0] * s.input[1] * s.in_channels
                                 : s.window[0] * s.window[1] * s.in_channels * s.out_channels;
    std::vector<Sum<T>> sums(static_cast<size_t>(n_result));
    const T *x = static_cast<const T*>(image), *f = static_cast<const T*>(filter);
    const T* g = static_cast<const T*>(output);
    for (int64_t n = 0; n < s.batch; ++n) {
      for (int64_t oy = 0; oy < s.output[0]; ++oy) {
        for (int64_t ox = 0; ox < s.output[1]; ++ox) {
          for (int64_t fy = 0; fy < s.window[0]; ++fy) {
            for (int64_t fx = 0; fx < s.window[1]; ++fx) {
              const int64_t iy = oy * s.stride[0] - s.padding[0] + fy * s.dilation[0];
              const int64_t ix = ox * s.stride[1] - s.padding[1] + fx * s.dilation[1];
              if (iy < 0 || iy >= s.input[0] || ix < 0 || ix >= s.input[1]) continue;
              for (int64_t ci = 0; ci < s.in_channels; ++ci) {
                for (int64_t co = 0; co < s.out_channels; ++co) {
                  const auto i = static_cast<size_t>(at(s.input, s.in_channels, n, iy, ix, ci));
                  const auto o = static_cast<size_t>(at(s.output, s.out_channels, n, oy, ox, co));
                  const auto w = static_cast<size_t>(at(s.window, s.in_channels, co, fy, fx, ci));
                  const auto value = [](const T* p, size_t k) { return static_cast<Sum<T>>(p[k]); };
                  if (forward) {
                    sums[o] += value(x, i) * value(f, w);
                  } else if (to_input) {
                    sums[i] += value(g, o) * value(f, w);
                  } else {
                    sums[w] += value(g, o) * value(x, i);
                  }
                }
              }
            }
          }
        }
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) static_cast<T*>(to)[i] = static_cast<T>(sums[i]);
  });
}

}  // namespace

Status cuda_matmul(const KernelContext& ctx, DType dtype, const CudaProduct& s, const void* a,
                   const void* b, void* c) {
  if (!kFloating.contains(dtype)) return unimplemented("products of matrices of ", dtype);
  MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
  emulated_enqueue(stream, [=] { MR_CHECK(multiply(dtype, s, a, b, c).ok()); });
  return ok_status();
}

Status cuda_convolve(const KernelContext& ctx, DType dtype, CudaConvolutionResult result,
                     const CudaConvolution& s, const void* image, const void* filter,
                     const void* output, void* to) {
  if (!kFloating.contains(dtype)) return unimplemented("convolutions of ", dtype);
  MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
  emulated_enqueue(stream,
                   [=] { MR_CHECK(convolve(dtype, result, s, image, filter, output, to).ok()); });
  return ok_status();
}

}  // namespace millrace
