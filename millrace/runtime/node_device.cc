#include "millrace/runtime/node_device.h"

namespace millrace {

std::optional<DeviceKind> device_kind(const Subgraph& graph, const SubNode& node) {
  const Result<DeviceName>& name = graph.devices().parsed(node.device);
  if (!name.ok() || !name->type) return std::nullopt;
  for (const DeviceKind kind :
       {DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kNull, DeviceKind::kSimulated}) {
    if (*name->type == device_type(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace millrace
