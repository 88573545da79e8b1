#include "millrace/runtime/optimize.h"

namespace millrace {
namespace {

bool is_root(const SubNode& node) {
  const OpTraits& t = node.op->traits;
  return t.result || t.stateful || t.owns_state || t.send ||
         node.attrs->find(kTargetAttr) != nullptr;
}

}  // namespace

Result<bool> remove_dead_nodes(Subgraph& graph, const OptimizeOptions&) {
  std::vector<bool> needed(static_cast<size_t>(graph.size()), false);
  std::vector<NodeId> todo;
  auto need = [&](NodeId id) {
    if (needed[static_cast<size_t>(id)]) return;
    needed[static_cast<size_t>(id)] = true;
    todo.push_back(id);
  };
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!graph.node(id).erased && is_root(graph.node(id))) need(id);
  }
  while (!todo.empty()) {
    const SubNode& node = graph.node(todo.back());
    todo.pop_back();
    for (Output input : node.inputs) need(input.node);
    for (NodeId c : node.control_inputs) need(c);
  }
  bool changed = false;
  for (NodeId id = 0; id < graph.size(); ++id) {
    SubNode& node = graph.node(id);
    if (node.erased || needed[static_cast<size_t>(id)]) continue;
    node.erased = true;
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

}  // namespace millrace
