#include "millrace/device/cuda/runtime.h"

#include <string_view>

#include "millrace/base/env.h"

namespace millrace {

Status cuda_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) [[likely]]
    return ok_status();
  std::string_view name = call;
  name = name.substr(0, name.find('('));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return resource_exhausted(name, ": out of memory");
  }
  return internal(name, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
}

bool cuda_synchronous() {
  static const bool synchronous = env_string("MILLRACE_CUDA_SYNC") == "1";
  return synchronous;
}

}  // namespace millrace
