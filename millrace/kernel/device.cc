#include "millrace/kernel/device.h"

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
  }
  return "?";
}

Device::Device(Info info, Ref<ResourceManager> resources)
    : info_(std::move(info)), full_name_(info_.name.to_string()), resources_(std::move(resources)) {
  MR_CHECK(info_.name.complete());
  MR_CHECK(info_.incarnation != 0);
  MR_CHECK(resources_);
}

Device::~Device() = default;

}  // namespace millrace
