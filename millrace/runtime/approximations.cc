#include "millrace/kernel/device.h"
#include "millrace/runtime/optimize.h"

// Gives nodes the op that computes nearly the same faster (trait approximated_by), where their
// device has a kernel for it. Whether it pays for the sizes that come, that kernel decides.

namespace millrace {
namespace {

bool has_kernel(const Subgraph& graph, const KernelRegistry& kernels, const SubNode& node,
                std::string_view op) {
  const Result<DeviceName>& name = graph.devices().parsed(node.device);
  if (!name.ok() || !name->type) return false;
  for (const DeviceKind kind :
       {DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kNull, DeviceKind::kSimulated}) {
    if (*name->type == device_type(kind)) return kernels.any(op, kind, *node.attrs);
  }
  return false;
}

}  // namespace

Result<bool> approximate(Subgraph& graph, const OptimizeOptions& options) {
  const KernelRegistry& kernels =
      options.kernels != nullptr ? *options.kernels : KernelRegistry::global();
  bool changed = false;
  for (SubNode& node : graph.nodes()) {
    const std::string_view name = node.op->traits.approximated_by;
    if (node.erased || name.empty() || !has_kernel(graph, kernels, node, name)) continue;
    const OpDef* const nearly = graph.registry().find(name);
    if (nearly == nullptr) continue;
    node.op = nearly;
    changed = true;
  }
  return changed;
}

}  // namespace millrace
