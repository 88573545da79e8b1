#include "millrace/runtime/presence.h"

#include <algorithm>
#include <iterator>

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

// Whether a node's outputs may be dead, or late, though its inputs are not.
bool decides(const OpTraits& t) {
  switch (t.control_flow) {
    case ControlFlow::kNone:
      return t.recv || t.argument;
    case ControlFlow::kEnter:
    case ControlFlow::kNextIteration:
    case ControlFlow::kLoopCond:
      return false;
    default:
      return true;
  }
}

}  // namespace

Presence::Presence(const Subgraph& graph, std::span<const NodeId> order)
    : of_(index(graph.size()), 0), sets_{{}} {
  for (NodeId id : order) of_[index(id)] = find(graph, id);
}

int Presence::find(const Subgraph& graph, NodeId id) {
  const SubNode& node = graph.node(id);
  // What is fed in a plan for the shapes of feeds is there from the start: no partial run uses one.
  if (node.op->traits.argument && node.attrs->find(kFeedShapeAttr) != nullptr) return 0;
  // The outputs of a Switch differ: those who read them tell them apart.
  if (decides(node.op->traits)) return intern({int64_t{id} * 2});
  int all = 0;
  for (Output input : node.inputs) {
    const bool branch = graph.node(input.node).op->traits.control_flow == ControlFlow::kSwitch;
    all = join(all, branch ? intern({(int64_t{input.node} << 16 | input.index) * 2 + 1})
                           : of_[index(input.node)]);
  }
  for (NodeId c : node.control_inputs) all = join(all, of_[index(c)]);
  return all;
}

int Presence::join(int a, int b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  const auto [at, fresh] = joined_.try_emplace(std::minmax(a, b), 0);
  if (fresh) {
    std::vector<int64_t> all;
    std::ranges::set_union(sets_[static_cast<size_t>(a)], sets_[static_cast<size_t>(b)],
                           std::back_inserter(all));
    at->second = intern(std::move(all));
  }
  return at->second;
}

int Presence::intern(std::vector<int64_t> set) {
  const auto [at, fresh] = ids_.try_emplace(set, static_cast<int>(sets_.size()));
  if (fresh) sets_.push_back(std::move(set));
  return at->second;
}

bool Presence::covers(int a, int b) const {
  return a == b ||
         std::ranges::includes(sets_[static_cast<size_t>(b)], sets_[static_cast<size_t>(a)]);
}

}  // namespace millrace
