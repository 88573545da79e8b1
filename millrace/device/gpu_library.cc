#include "millrace/device/gpu_library.h"

#include <dlfcn.h>

#include <atomic>
#include <string_view>

#include "millrace/base/log.h"

namespace millrace {
namespace {

std::atomic<const GpuLibrary*> linked{nullptr};

// The library beside libmillrace.so. A program that holds Millrace itself has registries of its
// own, of which the library would know nothing.
const GpuLibrary* load() {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&make_gpu_devices), &self) == 0) return nullptr;
  const std::string_view file = self.dli_fname;
  const size_t folder = file.rfind('/') + 1;
  if (!file.substr(folder).starts_with("libmillrace.so")) return nullptr;
  const std::string name = str_cat(file.substr(0, folder), "libmillrace_cuda.so");
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    const std::string_view text = reason != nullptr ? reason : "unknown reason";
    // What is missing comes first.
    if (text.starts_with(name)) {
      MR_LOG(kInfo, "no GPUs: ", text);
    } else {
      MR_LOG(kWarning, "no GPUs: ", name, " cannot be loaded: ", text);
    }
    return nullptr;
  }
  const auto entry = reinterpret_cast<GpuLibraryEntry>(dlsym(library, GpuLibrary::kEntry));
  const GpuLibrary* found = entry != nullptr ? entry(GpuLibrary::kVersion) : nullptr;
  if (found == nullptr) MR_LOG(kWarning, "no GPUs: ", name, " is of another version");
  return found;
}

}  // namespace

Result<std::vector<Ref<Device>>> make_gpu_devices(const DeviceName& task,
                                                  const GpuOptions& options) {
  const GpuLibrary* library = linked.load(std::memory_order_acquire);
  if (library == nullptr) {
    static const GpuLibrary* const loaded = load();
    library = loaded;
  }
  if (library == nullptr || options.count == 0) return std::vector<Ref<Device>>();
  return library->make_devices(task, options);
}

void set_gpu_library(const GpuLibrary* library) {
  linked.store(library, std::memory_order_release);
}

}  // namespace millrace
