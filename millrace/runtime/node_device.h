#pragma once

#include <optional>

#include "millrace/kernel/device.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// What kind of device a node is on; nothing before placement.
std::optional<DeviceKind> device_kind(const Subgraph& graph, const SubNode& node);

}  // namespace millrace
