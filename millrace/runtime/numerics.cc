#include "millrace/runtime/numerics.h"

#include <algorithm>
#include <map>
#include <optional>

#include "millrace/graph/op_def.h"

namespace millrace {
namespace {

size_t index(int64_t id) { return static_cast<size_t>(id); }

bool may_be_not_finite(DType type) {
  return kFloating.contains(type) || type == DType::kComplex64 || type == DType::kComplex128;
}

std::string title(const SubNode& node) {
  return str_cat(node.op->traits.argument ? "the feed" : node.op->name, " \"", node.name, "\"");
}

// Whether the node does something that lasts, or shows what it is given.
bool acts(const SubNode& node) {
  if (node.op->traits.result) return true;
  if (node.op->traits.control_flow != ControlFlow::kNone) return false;
  return node.op->traits.stateful ||
         std::any_of(node.input_types.begin(), node.input_types.end(), is_ref);
}

class Checker {
 public:
  explicit Checker(Subgraph& graph) : graph_(graph), original_(graph.size()) {}

  Status run() {
    MR_TRY_ASSIGN(const std::vector<NodeId> order, graph_.topological_order());
    const std::vector<std::vector<Subgraph::Use>> uses = graph_.uses();
    for (const NodeId id : order) {
      if (graph_.node(id).erased) continue;
      structured_ |= graph_.node(id).op->traits.control_flow != ControlFlow::kNone;
      const size_t outputs = graph_.node(id).output_types.size();
      for (size_t k = 0; k < outputs; ++k) {
        const DType type = graph_.node(id).output_types[k];
        if (!is_ref(type) && may_be_not_finite(type)) MR_TRY(add_origin(id, static_cast<int>(k)));
      }
    }
    MR_TRY(close_loops());
    for (const NodeId id : order) {
      if (!graph_.node(id).erased && acts(graph_.node(id))) MR_TRY(guard(id));
    }
    return structured_ ? ok_status() : let_updates_wait(uses);
  }

 private:
  std::optional<Output> origin(Output of) const {
    const auto found = origins_.find({of.node, of.index});
    if (found == origins_.end()) return std::nullopt;
    return found->second;
  }

  Status add_origin(NodeId id, int k) {
    // A copy: adding moves nodes.
    const SubNode node = graph_.node(id);
    const bool carried = node.op->traits.control_flow != ControlFlow::kNone;
    MR_TRY_ASSIGN(const Output added, carried ? carry(id, node, k) : look(id, node, k));
    origins_[{id, k}] = added;
    return ok_status();
  }

  // The origin of output k of an ordinary node.
  Result<Output> look(NodeId id, const SubNode& node, int k) {
    std::vector<Output> inputs = {{id, k}};
    std::vector<Output> operands;
    std::vector<std::string> names;
    std::vector<DType> types;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Output from = node.inputs[i];
      const DType type = graph_.output_type(from);
      if (is_ref(type) || !may_be_not_finite(type)) continue;
      if (const std::optional<Output> before = origin(from)) inputs.push_back(*before);
      operands.push_back(from);
      names.push_back(title(graph_.node(from.node)));
      types.push_back(type);
    }
    const auto origins = static_cast<int64_t>(inputs.size() - 1);
    inputs.insert(inputs.end(), operands.begin(), operands.end());
    return add(node, "_NumericsOrigin", std::move(inputs),
               {{"T", node.output_types[index(k)]},
                {"N", origins},
                {"Tin", std::move(types)},
                {"node", title(node)},
                {"where", describe_origin(node.origin)},
                {"operand_names", std::move(names)}});
  }

  // The origin of output k of a node that hands a tensor on: the same node, of origins.
  Result<Output> carry(NodeId id, const SubNode& node, int k) {
    if (const auto twin = twins_.find(id); twin != twins_.end()) return Output{twin->second, k};
    SubNode twin = node;
    twin.name = graph_.unique_name(node.name);
    twin.set_attr("T", DType::kString);
    std::vector<size_t> back;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Output from = node.inputs[i];
      if (!may_be_not_finite(base_type(graph_.output_type(from)))) continue;  // a predicate
      twin.input_types[i] = DType::kString;
      if (is_back_edge(graph_.node(from.node), node)) {
        back.push_back(i);
        continue;
      }
      std::optional<Output> before = origin(from);
      if (!before) {
        MR_TRY_ASSIGN(before, look_at_variable(node, from));
      }
      twin.inputs[i] = *before;
    }
    for (DType& type : twin.output_types) {
      if (may_be_not_finite(type)) type = DType::kString;
    }
    const NodeId made = graph_.add(std::move(twin));
    for (const size_t i : back) back_edges_.push_back({made, i, node.inputs[i]});
    twins_[id] = made;
    return Output{made, k};
  }

  // The origin of a reference that `reader` takes by value: what the variable holds.
  Result<Output> look_at_variable(const SubNode& reader, Output from) {
    const SubNode variable = graph_.node(from.node);
    return add(reader, "_NumericsOrigin", {from},
               {{"T", base_type(graph_.output_type(from))},
                {"N", 0},
                {"Tin", std::vector<DType>()},
                {"node", title(variable)},
                {"where", describe_origin(variable.origin)},
                {"operand_names", std::vector<std::string>()}});
  }

  // Merges were made before what comes back to them.
  Status close_loops() {
    for (const BackEdge& edge : back_edges_) {
      const std::optional<Output> before = origin(edge.from);
      if (!before) return internal("no origin comes back to ", title(graph_.node(edge.merge)));
      graph_.node(edge.merge).inputs[edge.input] = *before;
    }
    return ok_status();
  }

  Status guard(NodeId id) {
    bool any = false;
    for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
      const SubNode node = graph_.node(id);
      const std::optional<Output> began = origin(node.inputs[i]);
      if (!began) continue;
      const Output from = node.inputs[i];
      const SubNode source = graph_.node(from.node);
      const std::string reader = node.op->traits.result
                                     ? str_cat("The fetch \"", source.name, ":", from.index, "\"")
                                     : str_cat("Input ", i, " of ", title(node));
      MR_TRY_ASSIGN(const Output guarded,
                    add(node.op->traits.result ? source : node, "_NumericsGuard", {from, *began},
                        {{"T", graph_.output_type(from)}, {"reader", reader}}));
      graph_.node(id).inputs[i] = guarded;
      guards_.push_back({guarded.node, from.node});
      any = true;
    }
    if (any && !graph_.node(id).op->traits.result) guarded_.push_back(id);
    return ok_status();
  }

  // No guarded node runs before the guards of all tensors that need none of them: one that needs
  // an update cannot be waited for by it.
  Status let_updates_wait(const std::vector<std::vector<Subgraph::Use>>& uses) {
    std::vector<bool> after(index(original_));
    std::vector<NodeId> todo = guarded_;
    while (!todo.empty()) {
      const NodeId id = todo.back();
      todo.pop_back();
      if (after[index(id)]) continue;
      after[index(id)] = true;
      for (const Subgraph::Use& use : uses[index(id)]) todo.push_back(use.node);
    }
    std::vector<NodeId> first;
    for (const Guard& g : guards_) {
      if (!after[index(g.source)]) first.push_back(g.node);
    }
    if (first.empty() || guarded_.empty()) return ok_status();
    const SubNode& update = graph_.node(guarded_[0]);
    MR_TRY_ASSIGN(const NodeId all, graph_.add(graph_.unique_name("all_finite"), "NoOp", {},
                                               std::move(first), {}, update.device));
    for (const NodeId id : guarded_) graph_.node(id).control_inputs.push_back(all);
    return ok_status();
  }

  Result<Output> add(const SubNode& beside, std::string_view op, std::vector<Output> inputs,
                     AttrMap attrs) {
    MR_TRY_ASSIGN(const NodeId made,
                  graph_.add(graph_.unique_name(str_cat(beside.name, "/finite")), op,
                             std::move(inputs), {}, std::move(attrs), beside.device));
    graph_.node(made).origin = beside.origin;
    return Output{made, 0};
  }

  struct Guard {
    NodeId node;
    NodeId source;  // whose output it guards
  };
  struct BackEdge {
    NodeId merge;
    size_t input;
    Output from;
  };

  Subgraph& graph_;
  const int original_;  // how many nodes there were
  bool structured_ = false;
  std::map<std::pair<NodeId, int32_t>, Output> origins_;
  std::map<NodeId, NodeId> twins_;
  std::vector<BackEdge> back_edges_;
  std::vector<Guard> guards_;
  std::vector<NodeId> guarded_;
};

}  // namespace

Status add_numerics_checks(Subgraph& graph) { return Checker(graph).run(); }

}  // namespace millrace
