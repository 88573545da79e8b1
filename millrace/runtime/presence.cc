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

bool is(const SubNode& node, ControlFlow kind) { return node.op->traits.control_flow == kind; }

bool is_constant_enter(const SubNode& node) {
  const Result<bool> constant = node.attr<bool>("is_constant");
  return constant.ok() && *constant;
}

}  // namespace

Presence::Presence(const Subgraph& graph, std::span<const NodeId> order) : sets_{{}} {
  find_loops(graph);
  const std::vector<NodeId> loops_begin_together = find_order(graph);
  if (!loops_begin_together.empty()) order = loops_begin_together;
  do {
    for (Loop& loop : loops_) loop.entered = -1;
    of_.assign(index(graph.size()), 0);
    for (NodeId id : order) of_[index(id)] = find(graph, id);
  } while (!verify_loops());
}

void Presence::find_loops(const Subgraph& graph) {
  const auto& nodes = graph.nodes();
  if (std::ranges::none_of(
          nodes, [](const SubNode& n) { return !n.erased && is(n, ControlFlow::kLoopCond); })) {
    return;
  }
  const Result<FrameInfo> frames = analyze_frames(graph);
  if (!frames.ok()) return;
  std::vector<int> loop_of(frames->frames.size(), -1);
  for (size_t f = 1; f < frames->frames.size(); ++f) {
    if (frames->frames[f].loop_cond < 0) continue;
    loop_of[f] = static_cast<int>(loops_.size());
    loops_.push_back({.loop_cond = frames->frames[f].loop_cond});
  }
  for (NodeId id = 0; id < graph.size(); ++id) {
    const SubNode& node = graph.node(id);
    const int number = node.erased ? -1 : loop_of[index(frames->node_frame[index(id)])];
    if (number < 0) continue;
    Loop& loop = loops_[static_cast<size_t>(number)];
    if (is(node, ControlFlow::kExit)) loop_of_[id] = static_cast<size_t>(number);
    if (is(node, ControlFlow::kLoopCond)) loop.together = loop.together && id == loop.loop_cond;
    if (!is(node, ControlFlow::kMerge) || node.inputs.empty()) continue;
    const auto returns = [&](Output o) { return is_back_edge(graph.node(o.node), node); };
    if (std::ranges::none_of(node.inputs, returns)) continue;
    loop_of_[id] = static_cast<size_t>(number);
    loop.merges.push_back(id);
    for (Output o : node.inputs) {
      const SubNode& from = graph.node(o.node);
      const bool enters = is(from, ControlFlow::kEnter) && !is_constant_enter(from);
      (returns(o) ? loop.nexts : loop.enters).push_back(o.node);
      loop.together = loop.together && (returns(o) || enters);
    }
    loop.together = loop.together && node.inputs.size() == 2 && node.control_inputs.empty() &&
                    loop.nexts.size() == loop.enters.size();
  }
}

std::vector<NodeId> Presence::find_order(const Subgraph& graph) {
  if (loops_.empty()) return {};
  // Behind the nodes, where each loop has all that enters.
  const size_t size = index(graph.size()) + loops_.size();
  std::vector<int> missing(size, 0);
  std::vector<std::vector<NodeId>> next(size);
  const auto add_edge = [&](NodeId from, NodeId to) {
    next[index(from)].push_back(to);
    ++missing[index(to)];
  };
  size_t live = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const SubNode& node = graph.node(id);
    if (node.erased) continue;
    ++live;
    for (Output input : node.inputs) {
      if (!is_back_edge(graph.node(input.node), node)) add_edge(input.node, id);
    }
    for (NodeId c : node.control_inputs) add_edge(c, id);
  }
  for (size_t l = 0; l < loops_.size(); ++l) {
    const NodeId all = graph.size() + static_cast<NodeId>(l);
    for (NodeId enter : loops_[l].enters) add_edge(enter, all);
    for (NodeId merge : loops_[l].merges) add_edge(all, merge);
  }
  std::vector<NodeId> order;
  for (size_t i = 0; i < size; ++i) {
    const bool erased = i < index(graph.size()) && graph.nodes()[i].erased;
    if (!erased && missing[i] == 0) order.push_back(static_cast<NodeId>(i));
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (NodeId to : next[index(order[i])]) {
      if (--missing[index(to)] == 0) order.push_back(to);
    }
  }
  const bool complete = order.size() == live + loops_.size();
  std::erase_if(order, [&](NodeId id) { return id >= graph.size(); });
  if (complete) return order;
  for (Loop& loop : loops_) loop.together = false;
  return {};
}

bool Presence::verify_loops() {
  bool as_assumed = true;
  int ended = 0;  // loops inside of others end
  for (const Loop& loop : loops_) {
    if (loop.entered >= 0) ended = join(ended, ends(loop));
  }
  for (Loop& loop : loops_) {
    if (loop.entered < 0) continue;
    const int all = iterations(loop);
    const int goes_on = join(join(all, ended), intern({way({loop.loop_cond, 0}, 1, 2)}));
    loop.together =
        covers(of(loop.loop_cond), all) &&
        std::ranges::all_of(loop.nexts, [&](NodeId id) { return covers(of(id), goes_on); });
    as_assumed = as_assumed && loop.together;
  }
  return as_assumed;
}

int Presence::find(const Subgraph& graph, NodeId id) {
  const SubNode& node = graph.node(id);
  // What is fed in a plan for the shapes of feeds is there from the start: no partial run uses one.
  if (node.op->traits.argument && node.attrs->find(kFeedShapeAttr) != nullptr) return 0;
  if (is(node, ControlFlow::kMerge)) return find_merge(graph, node, id);
  if (is(node, ControlFlow::kExit)) {
    const auto at = loop_of_.find(id);
    if (at != loop_of_.end() && loops_[at->second].entered >= 0) {
      const Loop& loop = loops_[at->second];
      const SubNode& from = graph.node(node.inputs[0].node);
      if (node.control_inputs.empty() && is(from, ControlFlow::kSwitch) &&
          from.control_inputs.empty() && node.inputs[0].index == 0 &&
          from.inputs[1] == Output{loop.loop_cond, 0} &&
          std::ranges::find(loop.merges, from.inputs[0].node) != loop.merges.end()) {
        return join(loop.entered, ends(loop));
      }
    }
  }
  if (decides(node.op->traits) && !is(node, ControlFlow::kSwitch)) return intern({int64_t{id} * 2});
  int all = 0;
  for (Output input : node.inputs) all = join(all, of_output(graph, input));
  for (NodeId c : node.control_inputs) all = join(all, of_[index(c)]);
  return all;
}

int Presence::find_merge(const Subgraph& graph, const SubNode& merge, NodeId id) {
  const auto at = loop_of_.find(id);
  if (at != loop_of_.end()) {
    Loop& loop = loops_[at->second];
    if (loop.together && loop.entered < 0) {
      loop.entered = of(loop.enters[0]);
      loop.together =
          std::ranges::all_of(loop.enters, [&](NodeId e) { return of(e) == loop.entered; });
      if (!loop.together) loop.entered = -1;
    }
    return loop.together ? iterations(loop) : intern({int64_t{id} * 2});
  }
  if (merge.inputs.size() == 2 && merge.control_inputs.empty()) {
    const int a = of_output(graph, merge.inputs[0]), b = of_output(graph, merge.inputs[1]);
    const std::vector<int64_t>&set_a = sets_[static_cast<size_t>(a)],
          &set_b = sets_[static_cast<size_t>(b)];
    std::vector<int64_t> only_a, only_b, common;
    std::ranges::set_difference(set_a, set_b, std::back_inserter(only_a));
    std::ranges::set_difference(set_b, set_a, std::back_inserter(only_b));
    if (only_a.size() == 1 && only_b.size() == 1 && only_a[0] % 2 == 1 && only_b[0] % 2 == 1) {
      const Way &to_a = ways_[static_cast<size_t>(only_a[0] / 2)],
                &to_b = ways_[static_cast<size_t>(only_b[0] / 2)];
      if (to_a.predicate == to_b.predicate && to_a.ways == 2 && to_b.ways == 2) {
        std::ranges::set_intersection(set_a, set_b, std::back_inserter(common));
        return intern(std::move(common));
      }
    }
  }
  return intern({int64_t{id} * 2});
}

// The outputs of a Switch differ.
int Presence::of_output(const Subgraph& graph, Output output) {
  const SubNode& from = graph.node(output.node);
  const int all = of_[index(output.node)];
  if (!is(from, ControlFlow::kSwitch)) return all;
  return join(all, intern({way(from.inputs[1], output.index, from.output_types.size())}));
}

int64_t Presence::way(Output predicate, int32_t output, size_t ways) {
  const auto [at, fresh] = numbers_.try_emplace({{predicate.node, predicate.index}, output}, 0);
  if (fresh) {
    at->second = static_cast<int64_t>(ways_.size()) * 2 + 1;
    ways_.push_back({predicate, output, ways});
  }
  return at->second;
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
