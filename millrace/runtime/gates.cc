#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "millrace/runtime/optimize.h"
#include "millrace/runtime/presence.h"

// Takes gates away. A gate hands a value on once all values of a group are there, itself among
// them: an optimiser's gradient has one behind every op with several inputs. What computes no
// effect may as well go on at once. But what has effects still follows all whose place among them
// matters: other effects, and what computes with the memory of a variable, which an update may
// change in place.

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

// A set of numbers below a size that is known before.
class Bits {
 public:
  explicit Bits(size_t size = 0) : words_((size + 63) / 64, 0) {}
  void set(size_t i) { words_[i / 64] |= uint64_t{1} << i % 64; }
  bool has(size_t i) const { return (words_[i / 64] >> i % 64 & 1) != 0; }
  void add(const Bits& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  void remove(const Bits& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
  }
  std::vector<size_t> members() const {
    std::vector<size_t> out;
    for (size_t i = 0; i < 64 * words_.size(); ++i) {
      if (has(i)) out.push_back(i);
    }
    return out;
  }

 private:
  std::vector<uint64_t> words_;
};

class GateOpener {
 public:
  explicit GateOpener(Subgraph& graph) : graph_(graph) {}

  Result<bool> run() {
    bool any = false;
    waits_.resize(index(graph_.size()));
    for (NodeId id = 0; id < graph_.size(); ++id) {
      waits_[index(id)] = waits_of_gate(graph_.node(id));
      any |= !waits_[index(id)].empty();
    }
    if (!any) return false;
    MR_TRY_ASSIGN(order_, graph_.topological_order());
    uses_ = graph_.uses();
    MR_TRY_ASSIGN(const bool found, choose());
    if (!found) return false;
    MR_TRY(push_down());
    graph_.compact();
    return true;
  }

 private:
  // The work grows with nodes times those that have numbers; beyond so many bits it is left.
  static constexpr size_t kMostBits = size_t{1} << 29;

  // Computes its outputs from its inputs, at any time, and nobody asked for itself.
  bool has_no_effect(const SubNode& node) const {
    const OpTraits& t = node.op->traits;
    return !t.stateful && !t.owns_state && !t.step_state && !t.blocks && !t.send && !t.recv &&
           !t.argument && !t.result && !t.placeholder && t.control_flow == ControlFlow::kNone &&
           t.functional == FunctionalOp::kNone && !node.op->unknown && !node.op_owner &&
           node.attrs->find(kTargetAttr) == nullptr &&
           std::ranges::none_of(node.input_types, is_ref) &&
           std::ranges::none_of(node.output_types, is_ref) &&
           std::ranges::none_of(node.inputs,
                                [&](Output input) { return is_ref(graph_.output_type(input)); });
  }

  // An op that hands on its one input and has nothing to say but the type.
  static bool hands_on(const SubNode& node) {
    return node.op->traits.forwards && node.inputs.size() == 1 && node.output_types.size() == 1 &&
           std::ranges::all_of(node.op->attrs,
                               [](const AttrDef& attr) { return attr.type == "type"; });
  }

  bool is_group(const SubNode& node) const {
    return node.inputs.empty() && node.output_types.empty() && has_no_effect(node);
  }

  // What a gate waits for, its own value among it. Nothing for other nodes.
  std::vector<NodeId> waits_of_gate(const SubNode& node) const {
    if (node.erased || node.control_inputs.empty() || !hands_on(node) || !has_no_effect(node)) {
      return {};
    }
    const SubNode& source = graph_.node(node.inputs[0].node);
    if (source.device != node.device || source.op->traits.control_flow != ControlFlow::kNone) {
      return {};
    }
    std::vector<NodeId> waits, todo = node.control_inputs;
    while (!todo.empty()) {
      const NodeId id = todo.back();
      todo.pop_back();
      if (std::ranges::find(waits, id) != waits.end()) continue;
      waits.push_back(id);
      if (!is_group(graph_.node(id))) continue;
      const std::vector<NodeId>& more = graph_.node(id).control_inputs;
      todo.insert(todo.end(), more.begin(), more.end());
    }
    if (std::ranges::find(waits, node.inputs[0].node) == waits.end()) return {};
    std::erase_if(waits, [&](NodeId id) { return is_group(graph_.node(id)); });
    return waits;
  }

  bool opens(NodeId id) const { return !waits_[index(id)].empty(); }

  // What may wait for what a gate waited for: itself, or by a gate before it.
  static bool may_wait(const SubNode& node) {
    switch (node.op->traits.control_flow) {
      case ControlFlow::kNone:
        return true;
      case ControlFlow::kEnter:
      case ControlFlow::kExit:
      case ControlFlow::kNextIteration:
        return std::ranges::none_of(node.input_types, is_ref);
      default:
        return false;
    }
  }

  // Leaves those gates that it is worth to open and that may be.
  Result<bool> choose() {
    const Presence presence(graph_, order_);
    // Leads to a node that cannot wait: past a Merge others may be there when this is not.
    std::vector<bool> stuck(index(graph_.size()), false);
    bool any = false;
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
      const SubNode& node = graph_.node(*at);
      bool worthwhile = false;
      if (has_no_effect(node)) {
        for (const Subgraph::Use& use : uses_[index(*at)]) {
          if (stuck[index(use.node)]) stuck[index(*at)] = true;
          worthwhile |= has_no_effect(graph_.node(use.node));
        }
      } else {
        stuck[index(*at)] = !may_wait(node);
      }
      const bool there = std::ranges::all_of(waits_[index(*at)], [&](NodeId id) {
        return presence.covers(presence.of(id), presence.of(node.inputs[0].node));
      });
      if (!worthwhile || stuck[index(*at)] || !there) waits_[index(*at)].clear();
      any |= opens(*at);
    }
    return any;
  }

  // Of the nodes with a number.
  struct Facts {
    Bits pending;  // those that a gate before this node waited for, directly or not
    Bits before;   // those that this node follows anyway
  };

  // Numbers the nodes whose place in the order may be seen.
  Status number_nodes() {
    std::vector<bool> shared = outputs_in_variables();
    number_.resize(index(graph_.size()));
    for (NodeId id : order_) {
      const SubNode& node = graph_.node(id);
      const bool reads_variable =
          std::ranges::any_of(node.inputs, [&](Output input) { return shared[index(input.node)]; });
      // Whose value nobody reads is there to be waited for: a check, perhaps.
      const bool unread = std::ranges::all_of(
          uses_[index(id)], [](const Subgraph::Use& use) { return use.input < 0; });
      const bool matters = reads_variable || (unread && !is_group(node));
      if (has_no_effect(node) && (!matters || opens(id))) continue;
      number_[index(id)] = numbered_.size();
      numbered_.push_back(id);
    }
    if (numbered_.size() <= kMostBits / index(graph_.size())) return ok_status();
    return unimplemented("gates in a graph of ", graph_.size(), " nodes");
  }

  // By node: whether an output may lie in the memory of a reference variable.
  std::vector<bool> outputs_in_variables() const {
    std::vector<bool> shared(index(graph_.size()), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId id : order_) {
        if (shared[index(id)]) continue;
        const SubNode& node = graph_.node(id);
        bool own = std::ranges::any_of(node.output_types, is_ref);
        for (size_t i = 0; i < node.inputs.size() && !own; ++i) {
          const OpTraits& t = node.op->traits;
          own = shared[index(node.inputs[i].node)] &&
                (t.forwards || (t.may_alias >> std::min<size_t>(i, 31) & 1) != 0);
        }
        shared[index(id)] = own;
        changed |= own;
      }
    }
    return shared;
  }

  Status push_down() {
    MR_TRY(number_nodes());
    facts_.assign(index(graph_.size()), Facts{Bits(numbered_.size()), Bits(numbered_.size())});
    for (NodeId id : order_) {
      if (opens(id)) {
        follow(id, graph_.node(id).inputs[0].node);
        for (NodeId w : waits_[index(id)]) pend(id, w);
        continue;
      }
      for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
        const Output input = graph_.node(id).inputs[i];
        if (is_back_edge(graph_.node(input.node), graph_.node(id))) continue;
        follow(id, input.node);
        graph_.node(id).inputs[i] = past_gates(input);
      }
      for (NodeId& c : graph_.node(id).control_inputs) {
        follow(id, c);
        c = past_gates({c, 0}).node;
      }
      if (!has_no_effect(graph_.node(id))) MR_TRY(wait(id));
    }
    for (NodeId id : order_) {
      if (opens(id)) graph_.node(id).erased = true;
    }
    return ok_status();
  }

  // By an edge that stays.
  void follow(NodeId id, NodeId from) {
    Facts& own = facts_[index(id)];
    own.pending.add(facts_[index(from)].pending);
    own.before.add(facts_[index(from)].before);
    if (number_[index(from)]) own.before.set(*number_[index(from)]);
  }
  // By one that goes.
  void pend(NodeId id, NodeId from) {
    Facts& own = facts_[index(id)];
    own.pending.add(facts_[index(from)].pending);
    own.pending.add(facts_[index(from)].before);
    if (number_[index(from)]) own.pending.set(*number_[index(from)]);
  }

  Output past_gates(Output o) const {
    while (opens(o.node)) o = graph_.node(o.node).inputs[0];
    return o;
  }

  // Makes a node with effects wait for what is pending.
  Status wait(NodeId id) {
    Facts& facts = facts_[index(id)];
    facts.pending.remove(facts.before);
    std::vector<size_t> pending = facts.pending.members();
    // Not for what another of them follows.
    Bits follows(numbered_.size());
    for (size_t w : pending) follows.add(facts_[index(numbered_[w])].before);
    facts.before.add(facts.pending);
    facts.before.add(follows);
    facts.pending = Bits(numbered_.size());
    std::vector<NodeId> waits;
    for (size_t w : pending) {
      if (!follows.has(w)) waits.push_back(numbered_[w]);
    }
    if (waits.empty()) return ok_status();
    SubNode& node = graph_.node(id);
    const bool here =
        node.op->traits.control_flow == ControlFlow::kNone &&
        std::ranges::all_of(waits, [&](NodeId w) { return graph_.node(w).device == node.device; });
    const auto value = std::ranges::find_if(
        node.inputs, [&](Output input) { return !is_ref(graph_.output_type(input)); });
    if (here || value == node.inputs.end()) {
      node.control_inputs.insert(node.control_inputs.end(), waits.begin(), waits.end());
      return ok_status();
    }
    return add_gate(id, static_cast<size_t>(value - node.inputs.begin()), std::move(waits));
  }

  // One gate before a node on another device, or at an end of a loop: in front of one of its
  // inputs.
  Status add_gate(NodeId id, size_t input, std::vector<NodeId> waits) {
    const Output value = graph_.node(id).inputs[input];
    const DType type = graph_.output_type(value);
    const SubNode* const gate = first_gate();
    SubNode made = *gate;
    made.name = graph_.unique_name(gate->name);
    made.set_attr(gate->op->inputs[0].type_attr, type);
    made.inputs = {value};
    made.control_inputs = std::move(waits);
    made.input_types = made.output_types = {type};
    made.device = graph_.node(value.node).device;
    const NodeId added = graph_.add(std::move(made));
    graph_.node(id).inputs[input] = {added, 0};
    return ok_status();
  }

  const SubNode* first_gate() const {
    return &graph_.node(*std::ranges::find_if(order_, [&](NodeId id) { return opens(id); }));
  }

  Subgraph& graph_;
  std::vector<NodeId> order_;
  std::vector<std::vector<Subgraph::Use>> uses_;
  std::vector<std::vector<NodeId>> waits_;  // by node; none: no gate, or one that stays
  std::vector<NodeId> numbered_;
  std::vector<std::optional<size_t>> number_;  // by node
  std::vector<Facts> facts_;                   // by node
};

}  // namespace

Result<bool> open_gates(Subgraph& graph, const OptimizeOptions&) { return GateOpener(graph).run(); }

}  // namespace millrace
