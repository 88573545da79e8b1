#include "millrace/kernel/device.h"

#include "millrace/base/file_access.h"
#include "millrace/base/mutex.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {

std::string_view device_type(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "CPU";
    case DeviceKind::kCuda:
      return "GPU";
    case DeviceKind::kNull:
      return "NULL";
    case DeviceKind::kSimulated:
      return "SIM";
    case DeviceKind::kAny:
      return "any";
  }
  return "?";
}

Device::Device(Info info, Ref<ResourceManager> resources)
    : info_(std::move(info)),
      full_name_(info_.name.to_string()),
      resources_(std::move(resources)),
      files_(FileAccess::all()) {
  MR_CHECK(info_.name.complete());
  MR_CHECK(info_.incarnation != 0);
  MR_CHECK(resources_);
}

Device::~Device() = default;

void Device::set_files(Ref<FileAccess> files) {
  MR_CHECK(files);
  files_ = std::move(files);
}

namespace {

using Copy = void (Device::*)(const Tensor&, UniqueFunction<void(Result<Tensor>)>);

Result<Tensor> copy_and_wait(Device& device, Copy copy, const Tensor& from) {
  struct {
    Mutex mu;
    CondVar changed;
    bool done = false;
    Result<Tensor> copied = Tensor();
  } wait;
  (device.*copy)(from, [&wait](Result<Tensor> copied) {
    // Notified with the lock held: the waiter may destroy `wait` as soon as it has the lock.
    MutexLock lock(wait.mu);
    wait.copied = std::move(copied);
    wait.done = true;
    wait.changed.notify_one();
  });
  MutexLock lock(wait.mu);
  while (!wait.done) wait.changed.wait(wait.mu);
  return std::move(wait.copied);
}

}  // namespace

Result<Tensor> copy_to_host(Device& device, const Tensor& from) {
  return copy_and_wait(device, &Device::copy_to_host, from);
}

Result<Tensor> copy_from_host(Device& device, const Tensor& from) {
  return copy_and_wait(device, &Device::copy_from_host, from);
}

}  // namespace millrace
