#pragma once

#include <cstdint>
#include <type_traits>

#include "millrace/device/cuda/cuda_context.h"

// How sources in CUDA launch their kernels. They are written so that the number of threads and
// blocks changes no result: every loop goes over its range by the number of threads there are. So
// they can be compiled for the host too, where blocks of one thread run one after the other.

#if !defined(__CUDACC__)
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned ax = 1, unsigned ay = 1, unsigned az = 1) : x(ax), y(ay), z(az) {}  // NOLINT
};
inline thread_local dim3 threadIdx{0, 0, 0}, blockIdx{0, 0, 0}, blockDim, gridDim;
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static thread_local
#define __syncthreads() static_cast<void>(0)
#define __launch_bounds__(...)
#endif

namespace millrace {

template <class... P>
Status launch(const KernelContext& ctx, void (*kernel)(P...), dim3 grid, dim3 block,
              std::type_identity_t<P>... args) {
  MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
#if defined(__CUDACC__)
  kernel<<<grid, block, 0, stream>>>(args...);
#else
  static_cast<void>(block);
  emulated_enqueue(stream, [=] {
    gridDim = dim3(grid.x < 2 ? grid.x : 2, grid.y, grid.z);
    for (unsigned z = 0; z < gridDim.z; ++z) {
      for (unsigned y = 0; y < gridDim.y; ++y) {
        for (unsigned x = 0; x < gridDim.x; ++x) {
          blockIdx = dim3(x, y, z);
          kernel(args...);
        }
      }
    }
  });
#endif
  return launched(stream);
}

inline constexpr int kThreads = 256;
// Enough blocks to fill any GPU several times over.
inline constexpr int64_t kMostBlocks = 132 * 32;

inline unsigned blocks_for(int64_t n, int64_t per_block = kThreads) {
  const int64_t blocks = (n + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kMostBlocks ? blocks : kMostBlocks);
}

template <class F>
__global__ void __launch_bounds__(kThreads) for_each_kernel(int64_t n, F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    f(i);
  }
}

// f(i) for every i in [0, n), in no order.
template <class F>
Status for_each(const KernelContext& ctx, int64_t n, F f) {
  if (n <= 0) return ok_status();
  return launch(ctx, &for_each_kernel<F>, blocks_for(n), kThreads, n, f);
}

// Lowers the place to `value`; see CudaStream::expect_finding.
__device__ __forceinline__ void report_finding(uint64_t* place, uint64_t value) {
#if defined(__CUDA_ARCH__)
  atomicMin(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(value));
#elif !defined(__CUDACC__)
  if (value < *place) *place = value;
#endif
}

}  // namespace millrace
