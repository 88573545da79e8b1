#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/kernel/device.h"

namespace millrace {

class Registry;

// What a session wants of the GPUs of its process.
struct GpuOptions {
  int count = -1;              // at most so many devices; -1: all
  double memory_fraction = 0;  // of a GPU's memory, for all devices on it; 0: nearly all
  std::string visible;         // "2,0": GPU:0 is the third there is, GPU:1 the first; empty: all
  // For each GPU that is visible, the megabytes of each device that shares it; none: one device.
  std::vector<std::vector<double>> virtual_megabytes;
};

// What libmillrace_cuda.so, which links to libmillrace.so and is loaded by it, gives.
struct GpuLibrary {
  static constexpr int kVersion = 1;
  static constexpr const char* kEntry = "millrace_gpu_library";

  // One device for each GPU there is, none where there is none, named /device:GPU:0 and so on after
  // `task`. They share the GPUs with those of earlier calls. Nothing is done on a GPU before a
  // device is used. INVALID_ARGUMENT for options that make no sense.
  Result<std::vector<Ref<Device>>> (*make_devices)(const DeviceName& task,
                                                   const GpuOptions& options);
};
// What the library exports under kEntry: null for another version than it was built for.
using GpuLibraryEntry = const GpuLibrary* (*)(int version);

// The GPUs of this process as devices of `task`. None where the library, which lies beside
// libmillrace.so, or a GPU is missing; why is logged, as a warning where the library is there and
// cannot be used. It is loaded when this is called first.
Result<std::vector<Ref<Device>>> make_gpu_devices(const DeviceName& task,
                                                  const GpuOptions& options = {});

// Uses this instead of what would be loaded: for programs that link the library itself. Before
// make_gpu_devices() is called.
void set_gpu_library(const GpuLibrary* library);

}  // namespace millrace
