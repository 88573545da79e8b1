#include "millrace/runtime/node_device.h"
#include "millrace/runtime/optimize.h"

// Gives nodes the op that computes nearly the same faster (trait approximated_by), where their
// device has a kernel for it. Whether it pays for the sizes that come, that kernel decides.

namespace millrace {

Result<bool> approximate(Subgraph& graph, const OptimizeOptions& options) {
  const KernelRegistry& kernels =
      options.kernels != nullptr ? *options.kernels : KernelRegistry::global();
  bool changed = false;
  for (SubNode& node : graph.nodes()) {
    const std::string_view name = node.op->traits.approximated_by;
    if (node.erased || name.empty()) continue;
    const std::optional<DeviceKind> kind = device_kind(graph, node);
    if (!kind || !kernels.any(name, *kind, *node.attrs)) continue;
    const OpDef* const nearly = graph.registry().find(name);
    if (nearly == nullptr) continue;
    node.op = nearly;
    changed = true;
  }
  return changed;
}

}  // namespace millrace
