#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "millrace/kernel/device_name.h"

namespace millrace {

// A device as a node names it: a number in a DeviceTable. 0 is "", no wish. Two ids of one table
// are equal exactly when the texts are; "/cpu:0" and "/device:CPU:0" are two, so that a graph can
// be written as it was read. After placement a device has one id, that of its full name.
using DeviceId = int32_t;

// The names of the devices that the nodes of a graph ask for or are on, each kept and parsed once.
// Grows at its end: an id keeps its meaning, in copies of the table too.
class DeviceTable {
 public:
  DeviceTable();

  DeviceId intern(std::string_view name);
  int size() const { return static_cast<int>(entries_.size()); }
  const std::string& name(DeviceId id) const { return entries_[static_cast<size_t>(id)].name; }
  // INVALID_ARGUMENT when the text is not a device's name.
  const Result<DeviceName>& parsed(DeviceId id) const {
    return entries_[static_cast<size_t>(id)].parsed;
  }

 private:
  struct Entry {
    std::string name;
    Result<DeviceName> parsed;
  };
  std::vector<Entry> entries_;
  std::unordered_map<std::string, DeviceId> ids_;  // all but ""
};

}  // namespace millrace
