#include "millrace/runtime/device_table.h"

namespace millrace {

DeviceTable::DeviceTable() { entries_.push_back({"", DeviceName()}); }

DeviceId DeviceTable::intern(std::string_view name) {
  if (name.empty()) return 0;
  // Most nodes are where the one before is.
  if (entries_.back().name == name) return size() - 1;
  auto [it, added] = ids_.try_emplace(std::string(name), size());
  if (added) entries_.push_back({it->first, DeviceName::parse(name)});
  return it->second;
}

}  // namespace millrace
