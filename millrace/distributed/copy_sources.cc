#include "millrace/distributed/copy_sources.h"

#include <map>
#include <string>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kSmallConstant = size_t{16} << 10;

// Whether its value is the same wherever it stands, and is there when the step begins.
bool can_be_copied(const SubNode& node) {
  if (node.erased || !node.inputs.empty() || !node.control_inputs.empty()) return false;
  if (node.output_types.size() != 1 || is_ref(node.output_types[0])) return false;
  if (node.op->traits.argument) return true;
  if (!node.op->traits.constant) return false;
  const Result<Tensor> value = node.attr<Tensor>("value");
  return value.ok() && value->bytes() <= kSmallConstant;
}

}  // namespace

void copy_sources(Subgraph& graph, const DeviceSet& devices) {
  const auto info_of = [&](const SubNode& node) -> const Device::Info* {
    const int found = devices.find(graph.device_name(node));
    return found < 0 ? nullptr : &devices.devices()[static_cast<size_t>(found)];
  };
  std::map<std::pair<NodeId, std::string>, NodeId> copies;  // by source and task
  const int size = graph.size();
  for (NodeId id = 0; id < size; ++id) {
    if (graph.node(id).erased) continue;
    const Device::Info* reader = info_of(graph.node(id));
    if (reader == nullptr || reader->own_memory) continue;
    for (size_t i = 0; i < graph.node(id).inputs.size(); ++i) {
      const NodeId source = graph.node(id).inputs[i].node;
      if (!can_be_copied(graph.node(source))) continue;
      const Device::Info* from = info_of(graph.node(source));
      const std::string task = reader->name.task_name();
      if (from == nullptr || from->name.task_name() == task) continue;
      const auto [it, added] = copies.try_emplace({source, task}, -1);
      if (added) {
        SubNode copy = graph.node(source);
        copy.name = graph.unique_name(copy.name);
        copy.device = graph.node(id).device;
        it->second = graph.add(std::move(copy));
      }
      graph.node(id).inputs[i].node = it->second;
    }
  }
  if (copies.empty()) return;
  const auto uses = graph.uses();
  for (const auto& [source, copy] : copies) {
    if (uses[static_cast<size_t>(source.first)].empty()) graph.node(source.first).erased = true;
  }
}

}  // namespace millrace
