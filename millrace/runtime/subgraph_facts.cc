#include "millrace/runtime/subgraph_facts.h"

#include <algorithm>
#include <utility>

#include "millrace/runtime/subgraph.h"

namespace millrace {
namespace {

// How often loops are gone round with what turned out to hold before the sizes that still change
// are given up.
constexpr int kRounds = 3;

bool closes_loop(const Subgraph& graph, const SubNode& merge) {
  return std::any_of(merge.inputs.begin(), merge.inputs.end(),
                     [&](Output o) { return is_back_edge(graph.node(o.node), merge); });
}

bool same_facts(const TensorFacts& a, const TensorFacts& b) {
  return a.shape == b.shape && a.value == b.value && a.constant == b.constant;
}

}  // namespace

SubgraphFacts& SubgraphFacts::operator=(const SubgraphFacts& other) {
  if (this != &other) entries_.clear();
  return *this;
}

Status SubgraphFacts::update(const Subgraph& graph) {
  MR_TRY_ASSIGN(const std::vector<NodeId> order, graph.topological_order());
  entries_.resize(static_cast<size_t>(graph.size()));
  int round = 0;
  do {
    walk(graph, order);
  } while (widen(graph, ++round > kRounds));
  return ok_status();
}

bool SubgraphFacts::is_opaque(const SubNode& node) const {
  const OpTraits& t = node.op->traits;
  const bool has_state = t.stateful || t.owns_state || t.step_state;
  return (has_state && !believed(node)) || t.placeholder || t.argument || t.recv ||
         t.functional != FunctionalOp::kNone || node.op->unknown || node.op_owner;
}

bool SubgraphFacts::believed(const SubNode& node) const {
  return declared_ || (node.op->traits.owns_state && node.attrs->find(kHeldShapeAttr) != nullptr);
}

void SubgraphFacts::walk(const Subgraph& graph, std::span<const NodeId> order) {
  for (Entry& e : entries_) e.changed = false;
  for (NodeId id : order) {
    if (!outdated(graph, id)) continue;
    std::vector<TensorFacts> facts = work_out(graph, id);
    Entry& e = entry(id);
    e.changed = !std::equal(facts.begin(), facts.end(), e.facts.begin(), e.facts.end(), same_facts);
    e.facts = std::move(facts);
  }
}

bool SubgraphFacts::outdated(const Subgraph& graph, NodeId id) {
  const SubNode& node = graph.node(id);
  Entry& e = entry(id);
  if (e.op != node.op || e.attrs != node.attrs || e.inputs != node.inputs) {
    // Whoever reads it has facts of its own to work out only if these come out different.
    e.op = node.op;
    e.attrs = node.attrs;
    e.inputs = node.inputs;
    e.back.reset();
    e.stale = false;
    return true;
  }
  if (std::exchange(e.stale, false)) return true;
  for (Output input : node.inputs) {
    if (!is_back_edge(graph.node(input.node), node) && entry(input.node).changed) return true;
  }
  return false;
}

std::vector<TensorFacts> SubgraphFacts::work_out(const Subgraph& graph, NodeId id) {
  const SubNode& node = graph.node(id);
  ++work_;
  std::vector<TensorFacts> unknown(node.output_types.size());
  if (is_opaque(node)) {
    if (!node.op->traits.argument || node.attrs->find(kFeedShapeAttr) == nullptr) return unknown;
    Result<PartialShape> shape = node.attr<PartialShape>(kFeedShapeAttr);
    if (shape.ok()) unknown[0].shape = *std::move(shape);
    return unknown;
  }
  static const TensorFacts* const kUnknown = new TensorFacts;
  const Entry& e = entry(id);
  const TensorFacts* entered = kUnknown;
  for (Output input : node.inputs) {
    if (!is_back_edge(graph.node(input.node), node)) {
      entered = &of(input);
      break;
    }
  }
  std::vector<const TensorFacts*> inputs;
  for (Output input : node.inputs) {
    if (is_back_edge(graph.node(input.node), node)) {
      inputs.push_back(e.back ? &*e.back : entered);
    } else {
      inputs.push_back(&of(input));
    }
  }
  ShapeContext context(*node.op, *node.attrs, std::move(inputs), node.input_types,
                       node.output_types);
  Result<std::vector<TensorFacts>> facts = infer(context);
  if (!facts.ok()) return unknown;
  for (size_t i = 0; i < facts->size(); ++i) {
    TensorFacts& f = (*facts)[i];
    if (believed(node)) continue;
    f.resource.clear();
    if (is_ref(node.output_types[i])) f = TensorFacts();
  }
  return *std::move(facts);
}

// Where what comes back to a loop's Merge is not as was assumed, assumes what both have in common.
// True when something changed.
bool SubgraphFacts::widen(const Subgraph& graph, bool give_up) {
  bool any = false;
  std::vector<NodeId> merges;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const SubNode& node = graph.node(id);
    if (node.erased || !closes_loop(graph, node)) continue;
    merges.push_back(id);
    Entry& e = entry(id);
    PartialShape shape = e.facts[0].shape;
    for (Output input : node.inputs) shape = shape.common(of(input).shape);
    if (shape == e.facts[0].shape) continue;
    any = true;
    e.back.emplace().shape = std::move(shape);
    e.stale = true;
  }
  if (!any || !give_up) return any;
  for (NodeId id : merges) {
    entry(id).back.emplace();
    entry(id).stale = true;
  }
  return true;
}

void SubgraphFacts::renumber(std::span<const NodeId> map) {
  if (entries_.empty()) return;
  std::vector<Entry> kept;
  for (size_t i = 0; i < entries_.size() && i < map.size(); ++i) {
    if (map[i] < 0) continue;
    Entry& to = kept.emplace_back(std::move(entries_[i]));
    for (Output& input : to.inputs) {
      // -1: an input that has gone before; who read it reads another now.
      if (input.node >= 0) input.node = map[static_cast<size_t>(input.node)];
    }
  }
  entries_ = std::move(kept);
}

}  // namespace millrace
