#pragma once

#include "millrace/device/cuda/cuda_device.h"
#include "millrace/kernel/recorder.h"

namespace millrace {

// Begins to record work for a GPU as a graph of CUDA. FAILED_PRECONDITION where every launch is to
// be waited for, or MILLRACE_CUDA_GRAPHS=0.
Result<Ref<Recorder>> record_for(Ref<CudaDevice> device);

}  // namespace millrace
