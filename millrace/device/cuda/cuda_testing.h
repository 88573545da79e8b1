#pragma once

#include <vector>

#include "millrace/device/gpu_library.h"

// Of libmillrace_cuda, which tests link.
extern "C" const millrace::GpuLibrary* millrace_gpu_library(int version);

namespace millrace {

// The first GPU, with kernels registered; null where there is none.
inline Ref<Device> first_gpu(const GpuOptions& options = {}) {
  const DeviceName task = DeviceName::parse("/job:localhost/replica:0/task:0").value();
  auto devices = millrace_gpu_library(GpuLibrary::kVersion)->make_devices(task, options);
  MR_CHECK(devices.ok());
  return devices->empty() ? nullptr : (*devices)[0];
}

}  // namespace millrace

#define MR_SKIP_WITHOUT_GPU() \
  if (!::millrace::first_gpu()) GTEST_SKIP() << "there is no GPU"
