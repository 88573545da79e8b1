#pragma once

#include <cuda_runtime_api.h>

#include "millrace/base/function.h"
#include "millrace/base/status.h"

// How libraries' algorithms are chosen.

namespace millrace {

// What `work` takes on the stream: the least of some times, after one that does not count.
Result<float> cuda_milliseconds(cudaStream_t stream, FunctionRef<Status()> work);

// Whether what is enqueued is recorded instead of done: then nothing can be measured.
Result<bool> is_recorded(cudaStream_t stream);

}  // namespace millrace
