#pragma once

#include "millrace/device/cuda/cuda_stream.h"
#include "millrace/kernel/kernel.h"

namespace millrace {

// The stream of a kernel, whose GPU becomes the thread's.
inline Result<cudaStream_t> cuda_stream(const KernelContext& ctx) {
  return static_cast<CudaStream*>(ctx.stream())->handle();
}

// What became of work that was enqueued.
inline Status launched(cudaStream_t stream) {
  MR_CUDA_TRY(cudaPeekAtLastError());
  if (cuda_synchronous()) [[unlikely]]
    MR_CUDA_TRY(cudaStreamSynchronize(stream));
  return ok_status();
}

}  // namespace millrace
