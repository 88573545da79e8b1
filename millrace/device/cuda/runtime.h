#pragma once

#include "millrace/base/status.h"

// CUDA's runtime, or what stands in for it where kernels are compiled for the host.
#if defined(MILLRACE_CUDA_EMULATED)
#include "millrace/device/cuda/emulated/emulated_runtime.h"
#else
#include <cuda_runtime_api.h>
#endif

namespace millrace {

// OK, or what `call` said: RESOURCE_EXHAUSTED for memory, else INTERNAL with CUDA's name and text.
Status cuda_status(cudaError_t error, const char* call);

// With MILLRACE_CUDA_SYNC=1 in the environment every launch is waited for, so that what goes wrong
// on the device is said of the op that did it.
bool cuda_synchronous();

}  // namespace millrace

#define MR_CUDA_TRY(call) MR_TRY(::millrace::cuda_status((call), #call))
