#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "millrace/base/str_cat.h"
#include "millrace/runtime/optimize.h"

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

// Whose value may be known without running it.
bool has_value_rule(const SubNode& node) {
  const OpTraits& t = node.op->traits;
  return !node.erased && node.op->value != nullptr && !t.constant && !t.stateful && !t.owns_state;
}

class KnownValues {
 public:
  explicit KnownValues(Subgraph& graph) : graph_(graph) {}

  Result<bool> run() {
    // Shapes are not free, and most graphs that are small have none of it.
    const auto& nodes = graph_.nodes();
    if (std::none_of(nodes.begin(), nodes.end(), has_value_rule)) return false;
    MR_TRY(find_conditional());
    std::vector<NodeId> candidates;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (has_value_rule(graph_.node(id)) && !conditional_[index(id)]) candidates.push_back(id);
    }
    if (candidates.empty()) return false;
    MR_TRY_ASSIGN(const SubgraphFacts* facts, graph_.facts());
    std::unordered_map<NodeId, std::vector<Tensor>> values;
    for (NodeId id : candidates) {
      const SubNode& node = graph_.node(id);
      std::vector<Tensor> known(node.output_types.size());
      bool any = false;
      for (size_t k = 0; k < known.size(); ++k) {
        known[k] = value_of(facts->of({id, static_cast<int32_t>(k)}), node.output_types[k]);
        any |= known[k].valid();
      }
      if (any) values.emplace(id, std::move(known));
    }
    return replace(values);
  }

 private:
  // A node that may be dead, or run more than once: whatever follows from control flow.
  Status find_conditional() {
    MR_TRY_ASSIGN(const std::vector<NodeId> order, graph_.topological_order());
    conditional_.assign(index(graph_.size()), false);
    for (NodeId id : order) {
      const SubNode& node = graph_.node(id);
      bool found = node.op->traits.control_flow != ControlFlow::kNone || node.op->traits.recv;
      for (Output input : node.inputs) found = found || conditional_[index(input.node)];
      for (NodeId c : node.control_inputs) found = found || conditional_[index(c)];
      conditional_[index(id)] = found;
    }
    return ok_status();
  }

  static Tensor value_of(const TensorFacts& facts, DType type) {
    if (!facts.value || !facts.value->fully_known()) return {};
    const std::vector<std::optional<int64_t>>& elements = facts.value->elements;
    const Shape shape =
        facts.value->is_scalar ? Shape() : Shape{static_cast<int64_t>(elements.size())};
    Result<Tensor> value = Tensor::zeros(type, shape);
    if (!value.ok()) return {};
    if (type == DType::kInt32) {
      std::span<int32_t> to = value->mutable_data<int32_t>();
      for (size_t i = 0; i < to.size(); ++i) {
        if (!std::in_range<int32_t>(*elements[i])) return {};
        to[i] = static_cast<int32_t>(*elements[i]);
      }
    } else if (type == DType::kInt64) {
      std::span<int64_t> to = value->mutable_data<int64_t>();
      for (size_t i = 0; i < to.size(); ++i) to[i] = *elements[i];
    } else {
      return {};
    }
    return *std::move(value);
  }

  Result<bool> replace(const std::unordered_map<NodeId, std::vector<Tensor>>& values) {
    std::map<std::pair<NodeId, int32_t>, NodeId> constants;
    const NodeId size = graph_.size();
    for (NodeId id = 0; id < size; ++id) {
      for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
        const Output from = graph_.node(id).inputs[i];
        auto it = values.find(from.node);
        if (it == values.end()) continue;
        const Tensor& value = it->second[static_cast<size_t>(from.index)];
        if (!value.valid()) continue;
        auto [constant, fresh] = constants.try_emplace({from.node, from.index}, -1);
        if (fresh) {
          MR_TRY_ASSIGN(constant->second, add_constant(from.node, value));
        }
        graph_.node(id).inputs[i] = {constant->second, 0};
      }
    }
    return !constants.empty();
  }

  // Whoever reads it waits for what the node waited for.
  Result<NodeId> add_constant(NodeId id, Tensor value) {
    const SubNode node = graph_.node(id);
    const DType type = value.dtype();
    MR_TRY_ASSIGN(const NodeId added,
                  graph_.add(graph_.unique_name(str_cat(node.name, "/value")), "Const", {},
                             node.control_inputs, {{"dtype", type}, {"value", std::move(value)}},
                             node.device));
    graph_.node(added).origin = node.origin;
    return added;
  }

  Subgraph& graph_;
  std::vector<bool> conditional_;
};

}  // namespace

Result<bool> take_known_values(Subgraph& graph, const OptimizeOptions&) {
  return KnownValues(graph).run();
}

}  // namespace millrace
