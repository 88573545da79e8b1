#include "millrace/runtime/device_set.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace millrace {
namespace {

int kind_order(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCuda:
      return 0;
    case DeviceKind::kSimulated:
      return 1;
    case DeviceKind::kCpu:
      return 2;
    case DeviceKind::kNull:
    case DeviceKind::kAny:
      break;
  }
  return 3;
}

}  // namespace

DeviceSet::DeviceSet(std::vector<Device::Info> devices, int client) {
  MR_CHECK(client >= 0 && client < static_cast<int>(devices.size()));
  std::vector<size_t> order(devices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto rank = [&](size_t i) {
    const DeviceName& n = devices[i].name;
    return std::tuple(kind_order(devices[i].kind), *n.job, *n.replica, *n.task, *n.type, *n.id);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
  for (size_t i : order) {
    if (static_cast<int>(i) == client) client_ = static_cast<int>(devices_.size());
    names_.push_back(devices[i].name.to_string());
    devices_.push_back(std::move(devices[i]));
  }
}

int DeviceSet::find(const DeviceName& name) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int DeviceSet::find(std::string_view full_name) const {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == full_name) return static_cast<int>(i);
  }
  Result<DeviceName> parsed = DeviceName::parse(full_name);
  return parsed.ok() ? find(*parsed) : -1;
}

std::string DeviceSet::to_string() const { return str_join(names_, ", "); }

}  // namespace millrace
