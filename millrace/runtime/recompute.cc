#include "millrace/runtime/recompute.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "millrace/base/str_cat.h"

namespace millrace {
namespace {

using Item = MemoryTimeline::Item;

size_t index(NodeId id) { return static_cast<size_t>(id); }

// Nanoseconds of a floating-point operation where an op does many per element, and of a byte.
constexpr double kNsPerProduct = 0.01;
constexpr double kNsPerByte = 0.1;
// A node that costs more than this for each byte of its output is not among the cheap ones.
constexpr double kCheapNsPerByte = 1.5;
// Into so many parts of equal size the kept values are cut at most.
constexpr int kMostParts = 64;

class Recomputer {
 public:
  Recomputer(Subgraph& graph, int64_t budget) : graph_(graph), budget_(budget) {}

  Result<Recomputed> run() {
    MR_TRY_ASSIGN(order_, graph_.topological_order());
    MR_TRY_ASSIGN(bytes_, output_bytes(graph_));
    MR_TRY_ASSIGN(frames_, analyze_frames(graph_));
    timeline_.emplace(graph_, bytes_.made);
    std::vector<Item> items;
    for (NodeId id : order_) items.push_back({id});
    const MemoryTimeline::Peak peak = timeline_->peak(items);
    Recomputed done{.peak_before = peak.bytes, .peak_after = peak.bytes};
    if (peak.bytes <= budget_ || has_branches()) return done;
    peak_at_ = peak.at;
    find_facts();
    const std::optional<Choice> best = choose();
    if (!best || best->peak >= peak.bytes) return done;
    apply(best->dropped);
    done.peak_after = best->peak;
    done.nodes = static_cast<int>(again_.size());
    return done;
  }

 private:
  // Which nodes' outputs are not kept past the peak, and what comes of it.
  struct Choice {
    std::vector<bool> dropped;
    int64_t peak = 0;
    double cost = 0;
  };

  // A branch outside of loops: what is made in it may be dead, and so may what a node would wait
  // for.
  bool has_branches() const {
    return std::any_of(order_.begin(), order_.end(), [&](NodeId id) {
      const ControlFlow flow = graph_.node(id).op->traits.control_flow;
      return frames_.node_frame[index(id)] == 0 &&
             (flow == ControlFlow::kSwitch || flow == ControlFlow::kMerge);
    });
  }

  void find_facts() {
    const size_t n = index(graph_.size());
    position_.assign(n, 0);
    for (size_t i = 0; i < order_.size(); ++i) position_[index(order_[i])] = i;
    uses_ = graph_.uses();
    find_references();
    repeatable_.resize(n);
    cost_.resize(n);
    for (NodeId id : order_) {
      repeatable_[index(id)] = may_repeat(id);
      cost_[index(id)] = cost_of(id);
    }
    for (NodeId id : order_) {
      if (!repeatable_[index(id)] || position_[index(id)] > peak_at_) continue;
      if (kept_bytes(id) > 0) kept_.push_back(id);
    }
  }

  // By node, the positions of the first change of a reference that its value may be, and of the
  // nodes that change it.
  void find_references() {
    first_change_.assign(index(graph_.size()), std::numeric_limits<size_t>::max());
    changes_.resize(index(graph_.size()));
    for (NodeId id : order_) {
      for (const Subgraph::Use& use : uses_[index(id)]) {
        if (use.output < 0 || use.input < 0) continue;
        const SubNode& user = graph_.node(use.node);
        if (!is_ref(user.input_types[static_cast<size_t>(use.input)])) continue;
        if (!is_ref(graph_.output_type({id, use.output}))) continue;
        note_change(id, use.node);
      }
    }
    for (NodeId id : order_) {
      const SubNode& node = graph_.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!hands_on(*node.op, i)) continue;
        for (NodeId change : changes_[index(node.inputs[i].node)]) note_change(id, change);
      }
    }
  }
  // Whether an output may be input i as it is. What works in place does so in memory of its own: a
  // variable's it leaves alone.
  static bool hands_on(const OpDef& op, size_t i) {
    return (op.traits.forwards || !op.traits.elementwise) && i < 32 &&
           ((op.traits.may_alias >> i) & 1) != 0;
  }
  void note_change(NodeId id, NodeId change) {
    if (change == id) return;
    changes_[index(id)].push_back(change);
    first_change_[index(id)] = std::min(first_change_[index(id)], position_[index(change)]);
  }

  bool may_repeat(NodeId id) const {
    const SubNode& node = graph_.node(id);
    const OpTraits& t = node.op->traits;
    if (t.stateful || t.owns_state || t.step_state || t.blocks || t.send || t.recv || t.argument ||
        t.result || t.placeholder || t.constant || t.control_flow != ControlFlow::kNone ||
        t.functional != FunctionalOp::kNone || node.op->unknown || node.op_owner ||
        frames_.node_frame[index(id)] != 0) {
      return false;
    }
    for (Output input : node.inputs) {
      const DType type = graph_.output_type(input);
      if (is_ref(type) || type == DType::kResource || type == DType::kVariant) return false;
    }
    return std::all_of(node.output_types.begin(), node.output_types.end(),
                       [](DType type) { return !is_ref(type) && is_plain(type); });
  }

  // How many bytes a tensor has, and how many of these the run made.
  double bytes(Output o) const {
    return static_cast<double>(
        std::max<int64_t>(bytes_.sizes[index(o.node)][static_cast<size_t>(o.index)], 0));
  }
  int64_t made(Output o) const { return bytes_.made[index(o.node)][static_cast<size_t>(o.index)]; }
  double elements(Output o) const {
    const DType type = base_type(graph_.output_type(o));
    return is_plain(type) ? bytes(o) / static_cast<double>(dtype_size(type)) : 0;
  }

  // Roughly, in nanoseconds: what is written and read, what each element costs, and for ops that
  // multiply, all products of a matrix multiplication with operands of such sizes.
  double cost_of(NodeId id) const {
    const SubNode& node = graph_.node(id);
    constexpr double kMultiplies = 10;  // what such ops say of an element, at the least
    double bytes_moved = 0, written = 0, product = 1;
    for (Output o : node.inputs) {
      bytes_moved += bytes(o);
      product *= std::max(1.0, elements(o));
    }
    for (size_t k = 0; k < node.output_types.size(); ++k) {
      const Output o{id, static_cast<int32_t>(k)};
      bytes_moved += bytes(o);
      written += elements(o);
      product *= std::max(1.0, elements(o));
    }
    const double each = node.op->traits.cost;
    const bool multiplies = each >= kMultiplies && node.inputs.size() >= 2;
    return kNsPerByte * bytes_moved +
           (multiplies ? kNsPerProduct * std::sqrt(product) : each * written);
  }

  // How much of a node's output is there at the peak and read after it.
  int64_t kept_bytes(NodeId id) const {
    int64_t kept = 0;
    for (const Subgraph::Use& use : uses_[index(id)]) {
      if (use.input < 0 || position_[index(use.node)] <= peak_at_) continue;
      kept = std::max(kept, made({id, use.output}));
    }
    return kept;
  }

  std::optional<Choice> choose() {
    int64_t total = 0;
    for (NodeId id : kept_) total += kept_bytes(id);
    std::optional<Choice> best;
    for (const bool only_cheap : {true, false}) {
      for (int parts = 1; parts <= kMostParts; parts += std::max(1, parts / 3)) {
        consider(only_cheap, total / parts, best);
      }
    }
    return best;
  }

  // Keeps the last values before the peak as far as the budget goes: they would be made again at
  // once.
  void consider(bool only_cheap, int64_t part, std::optional<Choice>& best) {
    Choice choice = evaluate(dropped(only_cheap, part, kept_.size()));
    if (choice.peak <= budget_) {
      size_t enough = 0, all = kept_.size();  // so many of the first are to be looked at
      while (enough < all) {
        const size_t middle = (enough + all) / 2;
        Choice fewer = evaluate(dropped(only_cheap, part, middle));
        if (fewer.peak <= budget_) {
          all = middle;
          choice = std::move(fewer);
        } else {
          enough = middle + 1;
        }
      }
    }
    if (!best || better(choice, *best)) best = std::move(choice);
  }

  bool better(const Choice& a, const Choice& b) const {
    const bool a_fits = a.peak <= budget_, b_fits = b.peak <= budget_;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.cost < b.cost : a.peak < b.peak;
  }

  // Of the first `count` kept values those that are dropped: all but one for every `part` bytes.
  std::vector<bool> dropped(bool only_cheap, int64_t part, size_t count) const {
    std::vector<bool> out(index(graph_.size()), false);
    // What is not kept anyway is made again where that needs it.
    for (NodeId id : order_) {
      out[index(id)] = repeatable_[index(id)] && position_[index(id)] <= peak_at_;
    }
    for (NodeId id : kept_) out[index(id)] = false;
    int64_t gone = 0;
    for (size_t i = 0; i < count; ++i) {
      const NodeId id = kept_[i];
      const int64_t bytes = kept_bytes(id);
      if (only_cheap && cost_[index(id)] > kCheapNsPerByte * static_cast<double>(bytes)) continue;
      if (gone + bytes > part) {
        gone = 0;
        continue;
      }
      gone += bytes;
      out[index(id)] = true;
    }
    return out;
  }

  // What runs again, and before which position, when these are dropped.
  std::map<NodeId, size_t> runs_again(const std::vector<bool>& drop) const {
    std::map<NodeId, size_t> first_use;
    std::vector<NodeId> todo;
    auto need = [&](NodeId id, size_t at) {
      auto [it, fresh] = first_use.try_emplace(id, at);
      if (!fresh && it->second <= at) return;
      it->second = at;
      todo.push_back(id);
    };
    for (size_t at = peak_at_ + 1; at < order_.size(); ++at) {
      for (Output input : graph_.node(order_[at]).inputs) {
        if (drop[index(input.node)]) need(input.node, at);
      }
    }
    while (!todo.empty()) {
      const NodeId id = todo.back();
      todo.pop_back();
      for (Output input : graph_.node(id).inputs) {
        if (drop[index(input.node)]) need(input.node, first_use.at(id));
      }
    }
    return first_use;
  }

  // True when no run of a node, at the place where it runs again, could see a variable changed.
  bool sees_no_change(const std::map<NodeId, size_t>& again) const {
    return std::all_of(again.begin(), again.end(), [&](const auto& entry) {
      const auto& [id, at] = entry;
      const auto& inputs = graph_.node(id).inputs;
      return std::all_of(inputs.begin(), inputs.end(), [&, at = at](Output input) {
        return first_change_[index(input.node)] >= at;
      });
    });
  }

  Choice evaluate(std::vector<bool> drop) {
    // What would come too late is kept instead.
    std::map<NodeId, size_t> again = runs_again(drop);
    while (!sees_no_change(again)) {
      for (const auto& [id, at] : again) {
        for (Output input : graph_.node(id).inputs) {
          if (first_change_[index(input.node)] < at) drop[index(id)] = false;
        }
      }
      again = runs_again(drop);
    }
    Choice choice{.dropped = std::move(drop)};
    choice.peak = timeline_->peak(items_with(again)).bytes;
    for (const auto& [id, at] : again) choice.cost += cost_[index(id)];
    return choice;
  }

  std::vector<Item> items_with(const std::map<NodeId, size_t>& again) const {
    std::vector<std::pair<size_t, size_t>> inserted;  // before which position; the node's own
    for (const auto& [id, at] : again) inserted.emplace_back(at, position_[index(id)]);
    std::sort(inserted.begin(), inserted.end());
    std::vector<Item> items;
    auto next = inserted.begin();
    for (size_t at = 0; at < order_.size(); ++at) {
      for (; next != inserted.end() && next->first == at; ++next) {
        items.push_back(item(order_[next->second], /*twice=*/true, again));
      }
      Item own = item(order_[at], /*twice=*/false, again);
      if (at <= peak_at_) own.reads_again = 0;
      items.push_back(own);
    }
    return items;
  }
  Item item(NodeId id, bool twice, const std::map<NodeId, size_t>& again) const {
    Item out{.node = id, .again = twice};
    const auto& inputs = graph_.node(id).inputs;
    for (size_t i = 0; i < inputs.size() && i < 64; ++i) {
      if (again.contains(inputs[i].node)) out.reads_again |= uint64_t{1} << i;
    }
    return out;
  }

  void apply(const std::vector<bool>& drop) {
    again_ = runs_again(drop);
    std::vector<std::pair<size_t, NodeId>> by_position;
    for (const auto& [id, at] : again_) by_position.emplace_back(position_[index(id)], id);
    std::sort(by_position.begin(), by_position.end());
    std::map<NodeId, NodeId> twin;
    for (const auto& [at, id] : by_position) {
      SubNode node = graph_.node(id);
      node.name = graph_.unique_name(str_cat(node.name, "/again"));
      for (Output& input : node.inputs) {
        if (auto it = twin.find(input.node); it != twin.end()) input.node = it->second;
      }
      if (const NodeId before = trigger(again_.at(id)); before >= 0) {
        node.control_inputs.push_back(before);
      }
      twin[id] = graph_.add(std::move(node));
    }
    for (size_t at = peak_at_ + 1; at < order_.size(); ++at) {
      for (Output& input : graph_.node(order_[at]).inputs) {
        if (auto it = twin.find(input.node); it != twin.end()) input.node = it->second;
      }
    }
    for (const auto& [id, again] : twin) {
      for (Output input : graph_.node(id).inputs) {
        for (NodeId change : changes_[index(input.node)]) {
          graph_.node(change).control_inputs.push_back(again);
        }
      }
    }
  }

  // What a run again before position `at` waits for: what the node there waits for longest, or
  // else what runs before it; -1: nothing.
  NodeId trigger(size_t at) const {
    size_t last = 0;
    for (Output input : graph_.node(order_[at]).inputs) {
      if (!again_.contains(input.node)) last = std::max(last, position_[index(input.node)]);
    }
    if (last > peak_at_) return order_[last];
    for (last = at - 1; last >= peak_at_; --last) {
      if (frames_.output_frame[index(order_[last])] == 0) return order_[last];
    }
    return -1;
  }

  Subgraph& graph_;
  const int64_t budget_;
  std::vector<NodeId> order_;
  OutputBytes bytes_;
  FrameInfo frames_;
  std::optional<MemoryTimeline> timeline_;
  size_t peak_at_ = 0;
  std::vector<size_t> position_;
  std::vector<std::vector<Subgraph::Use>> uses_;
  std::vector<std::vector<NodeId>> changes_;
  std::vector<size_t> first_change_;
  std::vector<bool> repeatable_;
  std::vector<double> cost_;
  std::vector<NodeId> kept_;  // in order
  std::map<NodeId, size_t> again_;
};

}  // namespace

Result<Recomputed> recompute(Subgraph& graph, int64_t budget) {
  return Recomputer(graph, budget).run();
}

}  // namespace millrace
