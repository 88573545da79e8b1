#include <algorithm>
#include <vector>

#include "millrace/base/str_cat.h"
#include "millrace/runtime/optimize.h"

// Takes out of loops what is the same in every iteration: an op that reads nothing but constants of
// the loop is run before it, and its result enters as a constant too. It then runs where the loop
// has no iteration as well, so it must not be able to fail: arithmetic of real and complex numbers,
// whose shapes are known where there is more than one operand, and what only moves elements.

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

class Mover {
 public:
  explicit Mover(Subgraph& graph) : graph_(graph) {}

  Result<bool> run() {
    bool any = false;
    for (const SubNode& node : graph_.nodes()) any = any || is_candidate(node);
    if (!any) return false;
    MR_TRY_ASSIGN(facts_, graph_.facts());
    MR_TRY_ASSIGN(const std::vector<NodeId> order, graph_.topological_order());
    uses_ = graph_.uses();
    bool changed = false;
    for (NodeId id : order) {
      if (!is_candidate(graph_.node(id)) || may_fail(id)) continue;
      move_out(id);
      changed = true;
    }
    return changed;
  }

 private:
  // Whether `o` is a constant of a loop.
  bool is_constant_of_loop(Output o) const {
    const SubNode& node = graph_.node(o.node);
    if (node.op->traits.control_flow != ControlFlow::kEnter || is_ref(node.output_types[0])) {
      return false;
    }
    const Result<bool> constant = node.attr<bool>("is_constant");
    return constant.ok() && *constant;
  }

  // What can be said without shapes.
  bool is_candidate(const SubNode& node) const {
    if (node.erased || node.inputs.empty() || !node.control_inputs.empty() ||
        node.output_types.size() != 1 || node.op_owner) {
      return false;
    }
    const OpTraits& t = node.op->traits;
    const bool computes = !t.fused_by.empty() || t.folds || t.filter_channels != 0;
    static constexpr TypeSet kNumbersWithoutErrors = kFloating | kComplex;
    if (t.stateful || t.control_flow != ControlFlow::kNone ||
        !((computes && kNumbersWithoutErrors.contains(node.output_types[0])) || t.permutes)) {
      return false;
    }
    return std::ranges::all_of(node.inputs, [&](Output o) { return is_constant_of_loop(o); }) &&
           std::ranges::all_of(node.inputs,
                               [&](Output o) { return graph_.node(o.node).device == node.device; });
  }

  // One operand has every shape that there is.
  bool may_fail(NodeId id) const {
    return graph_.node(id).inputs.size() > 1 && !facts_->of({id, 0}).shape.fully_known();
  }

  void move_out(NodeId id) {
    SubNode enter = graph_.node(graph_.node(id).inputs[0].node);
    SubNode& node = graph_.node(id);
    for (Output& input : node.inputs) input = graph_.node(input.node).inputs[0];
    const DType type = node.output_types[0];
    enter.name = graph_.unique_name(str_cat(node.name, "/enter"));
    enter.set_attr(enter.op->inputs[0].type_attr, type);
    enter.inputs = {{id, 0}};
    enter.input_types = enter.output_types = {type};
    enter.device = node.device;
    enter.origin = node.origin;
    const NodeId inside = graph_.add(std::move(enter));
    for (const Subgraph::Use& use : uses_[index(id)]) {
      SubNode& reader = graph_.node(use.node);
      if (use.input >= 0) {
        reader.inputs[static_cast<size_t>(use.input)] = {inside, 0};
      } else {
        std::ranges::replace(reader.control_inputs, id, inside);
      }
    }
  }

  Subgraph& graph_;
  const SubgraphFacts* facts_ = nullptr;
  std::vector<std::vector<Subgraph::Use>> uses_;  // of the nodes there were at first
};

}  // namespace

Result<bool> move_invariants_out(Subgraph& graph, const OptimizeOptions&) {
  return Mover(graph).run();
}

}  // namespace millrace
