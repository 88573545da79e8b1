#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/kernel/device.h"

namespace millrace {

// The devices that a placement may choose from, as facts: the devices themselves may be in other
// processes.
class DeviceSet {
 public:
  DeviceSet() = default;
  // `client` is the device that feeds come from and fetches go to: one of `devices`.
  DeviceSet(std::vector<Device::Info> devices, int client);

  // Best first: by kind (CUDA, simulated, CPU, null), then by name.
  const std::vector<Device::Info>& devices() const { return devices_; }
  const Device::Info& client() const { return devices_[static_cast<size_t>(client_)]; }
  const std::string& client_name() const { return names_[static_cast<size_t>(client_)]; }
  // -1 when no device has exactly this name.
  int find(const DeviceName& name) const;
  int find(std::string_view full_name) const;
  const std::string& full_name(int i) const { return names_[static_cast<size_t>(i)]; }
  // All full names, for messages.
  std::string to_string() const;

 private:
  std::vector<Device::Info> devices_;
  std::vector<std::string> names_;
  int client_ = 0;
};

}  // namespace millrace
