#include "millrace/device/cuda/cuda_measure.h"

#include <algorithm>
#include <limits>

#include "millrace/device/cuda/runtime.h"

namespace millrace {
namespace {

struct Events {
  ~Events() {
    for (cudaEvent_t event : {begin, end}) {
      if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
    }
  }
  cudaEvent_t begin = nullptr, end = nullptr;
};

}  // namespace

Result<float> cuda_milliseconds(cudaStream_t stream, FunctionRef<Status()> work) {
  constexpr int kTimes = 3;
  Events events;
  MR_CUDA_TRY(cudaEventCreate(&events.begin));
  MR_CUDA_TRY(cudaEventCreate(&events.end));
  MR_TRY(work());  // with what is done once
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    MR_CUDA_TRY(cudaEventRecord(events.begin, stream));
    MR_TRY(work());
    MR_CUDA_TRY(cudaEventRecord(events.end, stream));
    MR_CUDA_TRY(cudaEventSynchronize(events.end));
    float took = 0;
    MR_CUDA_TRY(cudaEventElapsedTime(&took, events.begin, events.end));
    least = std::min(least, took);
  }
  return least;
}

Result<bool> is_recorded(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  MR_CUDA_TRY(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace millrace
