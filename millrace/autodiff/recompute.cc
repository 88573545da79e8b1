#include "millrace/autodiff/recompute.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/autodiff/forward_order.h"

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

bool runs_again(const Node& node) {
  const OpTraits& t = node.op().traits;
  return !t.stateful && !t.constant && !t.placeholder && !t.argument && !t.owns_state &&
         !t.step_state && t.control_flow == ControlFlow::kNone &&
         t.functional == FunctionalOp::kNone && !node.op_owner() && !node.op().unknown;
}

std::vector<NodeId> order_of(const Graph& graph, std::span<const Output> ys) {
  std::vector<NodeId> roots;
  for (Output y : ys) roots.push_back(y.node);
  return forward_order(graph, roots);
}

int64_t bytes_of(const Graph& graph, Output o) {
  const PartialShape& shape = graph.facts(o).shape;
  int64_t elements = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    int64_t size = shape.dim_known(i) ? shape.dim(i) : 1;
    if (size > 0 && elements > (int64_t{1} << 50) / size) return int64_t{1} << 50;
    elements *= size;
  }
  return elements * static_cast<int64_t>(std::max<size_t>(1, dtype_size(graph.output_type(o))));
}

// A place in the order of computation where the graph can be cut.
struct Cut {
  size_t position;       // behind the node at this position
  int64_t before = 0;    // bytes made up to here
  int64_t crossing = 0;  // bytes that are made before and used behind
  std::vector<Output> tensors;
};

}  // namespace

TensorSet choose_checkpoints(const Graph& graph, std::span<const Output> ys,
                             std::span<const Output> xs, int64_t budget) {
  std::vector<NodeId> order = order_of(graph, ys);
  std::vector<bool> on_way(static_cast<size_t>(graph.num_nodes()), false);
  for (Output x : xs) on_way[index(x.node)] = true;
  std::vector<NodeId> steps;  // that can be computed again
  for (NodeId id : order) {
    const Node& node = graph.node(id);
    for (Output input : node.inputs()) {
      if (on_way[index(input.node)]) on_way[index(id)] = true;
    }
    if (on_way[index(id)] && runs_again(node)) steps.push_back(id);
  }
  if (steps.size() < 4) return {};

  std::map<NodeId, size_t> position;
  for (size_t i = 0; i < steps.size(); ++i) position[steps[i]] = i;
  std::map<std::pair<NodeId, int32_t>, size_t> last_use;
  for (NodeId id : order) {
    auto at = position.find(id);
    if (at == position.end()) continue;
    for (Output input : graph.node(id).inputs()) {
      if (position.contains(input.node)) last_use[{input.node, input.index}] = at->second;
    }
  }
  std::vector<Cut> cuts;
  int64_t total = 0, crossing = 0;
  std::vector<std::vector<std::pair<NodeId, int32_t>>> ends(steps.size());
  std::set<std::pair<NodeId, int32_t>> live;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const auto& key : ends[i]) {
      live.erase(key);
      crossing -= bytes_of(graph, {key.first, key.second});
    }
    const Node& node = graph.node(steps[i]);
    for (int k = 0; k < node.num_outputs(); ++k) {
      Output o = {steps[i], k};
      total += bytes_of(graph, o);
      auto use = last_use.find({steps[i], k});
      if (use == last_use.end()) continue;
      ends[use->second].push_back(use->first);
      live.insert(use->first);
      crossing += bytes_of(graph, o);
    }
    Cut cut = {.position = i, .before = total, .crossing = crossing};
    for (const auto& [n, k] : live) cut.tensors.push_back({n, k});
    if (i + 1 < steps.size()) cuts.push_back(std::move(cut));
  }
  if (budget > 0 && total <= budget) return {};

  // Cuts that divide the bytes into `parts`, each the thinnest of its neighbourhood.
  auto divide = [&](int64_t parts) {
    std::vector<const Cut*> chosen;
    for (int64_t k = 1; k < parts; ++k) {
      double target =
          static_cast<double>(total) * static_cast<double>(k) / static_cast<double>(parts);
      double reach = static_cast<double>(total) / static_cast<double>(parts) / 4;
      const Cut* best = nullptr;
      for (const Cut& cut : cuts) {
        double distance = std::abs(static_cast<double>(cut.before) - target);
        if (distance > reach && best != nullptr) continue;
        auto better = [&](const Cut& a, const Cut& b) {
          bool near_a = std::abs(static_cast<double>(a.before) - target) <= reach;
          bool near_b = std::abs(static_cast<double>(b.before) - target) <= reach;
          if (near_a != near_b) return near_a;
          return near_a ? a.crossing < b.crossing
                        : std::abs(static_cast<double>(a.before) - target) <
                              std::abs(static_cast<double>(b.before) - target);
        };
        if (best == nullptr || better(cut, *best)) best = &cut;
      }
      if (chosen.empty() || chosen.back()->position < best->position) chosen.push_back(best);
    }
    return chosen;
  };
  // What is held at most: the checkpoints, and one part that is computed again.
  auto peak = [&](const std::vector<const Cut*>& chosen) {
    int64_t held = 0, largest = 0, start = 0;
    for (const Cut* cut : chosen) {
      held += cut->crossing;
      largest = std::max(largest, cut->before - start);
      start = cut->before;
    }
    return held + std::max(largest, total - start);
  };
  std::vector<const Cut*> best;
  int64_t best_peak = std::numeric_limits<int64_t>::max();
  int64_t most = std::min<int64_t>(static_cast<int64_t>(steps.size()), 256);
  for (int64_t parts = 2; parts <= most; ++parts) {
    std::vector<const Cut*> chosen = divide(parts);
    int64_t bytes = peak(chosen);
    if (bytes < best_peak) {
      best_peak = bytes;
      best = std::move(chosen);
    }
    if (budget > 0 && best_peak <= budget) break;
  }
  TensorSet kept;
  for (const Cut* cut : best) {
    for (Output o : cut->tensors) kept.insert({o.node, o.index});
  }
  return kept;
}

Recomputation::Recomputation(GraphBuilder& builder, std::span<const Output> ys, TensorSet kept)
    : builder_(builder), kept_(std::move(kept)) {
  const Graph& graph = builder.graph();
  // Behind the last checkpoint the backward pass begins at once: nothing is gained there.
  std::vector<NodeId> order = order_of(graph, ys);
  tail_.assign(static_cast<size_t>(graph.num_nodes()), true);
  std::vector<bool> before_kept(static_cast<size_t>(graph.num_nodes()), false);
  for (const auto& [node, output] : kept_) before_kept[index(node)] = true;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if (!before_kept[index(*it)]) continue;
    tail_[index(*it)] = false;
    for (Output input : graph.node(*it).inputs()) before_kept[index(input.node)] = true;
  }
}

bool Recomputation::is_kept(Output o) const {
  if (index(o.node) >= tail_.size() || tail_[index(o.node)]) return true;
  return kept_.contains({o.node, o.index}) || !runs_again(builder_.graph().node(o.node));
}

NodeId Recomputation::copy_of(NodeId root, NodeId after) {
  const Graph& graph = builder_.graph();
  std::vector<NodeId> stack = {root};
  while (!stack.empty()) {
    NodeId id = stack.back();
    if (copies_.contains(id)) {
      stack.pop_back();
      continue;
    }
    const Node& node = graph.node(id);
    bool ready = true;
    for (Output input : node.inputs()) {
      if (is_kept(input) || copies_.contains(input.node)) continue;
      stack.push_back(input.node);
      ready = false;
    }
    if (!ready) continue;
    stack.pop_back();
    std::vector<Output> inputs;
    for (Output input : node.inputs()) {
      inputs.push_back(is_kept(input) ? input : Output{copies_[input.node], input.index});
    }
    GraphBuilder::Context before = builder_.context();
    builder_.context().control_inputs.push_back(after);
    builder_.context().origin = node.origin();
    builder_.context().device = node.device();
    AttrMap attrs = node.attrs();
    attrs.erase("_clear_after_read");  // the value is read a second time
    Result<NodeId> copy =
        builder_.add(node.op_name(), "recomputed", std::move(inputs), std::move(attrs));
    builder_.context() = std::move(before);
    if (!copy.ok()) {
      builder_.fail(copy.status());
      return -1;
    }
    copies_[id] = *copy;
  }
  return copies_[root];
}

Expr Recomputation::view(Output o, NodeId after) {
  if (is_kept(o)) return builder_.expr(o);
  NodeId copy = copy_of(o.node, after);
  return copy < 0 ? Expr() : builder_.expr({copy, o.index});
}

}  // namespace millrace
