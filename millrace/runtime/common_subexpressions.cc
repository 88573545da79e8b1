#include <algorithm>
#include <unordered_map>

#include "millrace/base/hash.h"
#include "millrace/runtime/optimize.h"

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

bool may_merge(const SubNode& node, const OptimizeOptions& options) {
  const OpTraits& t = node.op->traits;
  if (t.stateful || t.owns_state || t.step_state || t.send || t.recv || t.argument || t.result ||
      t.placeholder || t.control_flow != ControlFlow::kNone || node.op->unknown || node.op_owner) {
    return false;
  }
  if (t.constant) {
    // Comparing large constants costs more than it saves.
    const AttrValue* value = node.attrs->find("value");
    const TensorAttr* tensor = value != nullptr ? value->get<TensorAttr>() : nullptr;
    if (tensor == nullptr ||
        static_cast<int64_t>(tensor->tensor.bytes()) > options.max_constant_bytes)
      return false;
  }
  auto plain = [](DType type) { return !is_ref(type); };
  return std::all_of(node.input_types.begin(), node.input_types.end(), plain) &&
         std::all_of(node.output_types.begin(), node.output_types.end(), plain);
}

// Whether the order of the inputs leaves the result's bits alone. Not so for floats: a sum of three
// depends on it, and a zero's sign or a NaN's payload may be that of the first input.
bool order_is_free(const SubNode& node) {
  static constexpr TypeSet kRounded = kFloating | kComplex;
  return node.op->traits.commutative &&
         std::none_of(node.output_types.begin(), node.output_types.end(),
                      [](DType type) { return kRounded.contains(type); });
}

// What two nodes must have in common to be one.
struct Expression {
  const SubNode* node;
  std::vector<Output> inputs;
  std::vector<NodeId> control_inputs;

  uint64_t hash() const {
    uint64_t h = hash_bytes(node->op->name);
    h = hash_combine(h, static_cast<uint64_t>(node->device));
    for (const auto& [name, value] : *node->attrs) {
      h = hash_combine(hash_combine(h, hash_bytes(name)), value.hash());
    }
    for (Output o : inputs) {
      h = hash_combine(h, static_cast<uint64_t>(o.node) << 32 | static_cast<uint32_t>(o.index));
    }
    for (NodeId c : control_inputs) h = hash_combine(h, ~static_cast<uint64_t>(c));
    return h;
  }

  friend bool operator==(const Expression& a, const Expression& b) {
    return a.node->op == b.node->op && a.node->device == b.node->device && a.inputs == b.inputs &&
           a.control_inputs == b.control_inputs &&
           (a.node->attrs == b.node->attrs || *a.node->attrs == *b.node->attrs);
  }
};

}  // namespace

Result<bool> merge_common_subexpressions(Subgraph& graph, const OptimizeOptions& options) {
  MR_TRY_ASSIGN(std::vector<NodeId> order, graph.topological_order());
  // A variable may change between two reads, so those who read a reference are not alike.
  auto reads_reference = [&](const SubNode& node) {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](Output o) { return is_ref(graph.output_type(o)); });
  };
  std::vector<NodeId> stands_for(index(graph.size()));
  for (NodeId id = 0; id < graph.size(); ++id) stands_for[index(id)] = id;
  std::unordered_multimap<uint64_t, Expression> seen;
  bool changed = false;
  for (NodeId id : order) {
    SubNode& node = graph.node(id);
    for (Output& input : node.inputs) input.node = stands_for[index(input.node)];
    for (NodeId& c : node.control_inputs) c = stands_for[index(c)];
    if (!may_merge(node, options) || reads_reference(node)) continue;
    Expression e{&node, node.inputs, node.control_inputs};
    if (order_is_free(node)) {
      std::sort(e.inputs.begin(), e.inputs.end(), [](Output a, Output b) {
        return a.node != b.node ? a.node < b.node : a.index < b.index;
      });
    }
    std::sort(e.control_inputs.begin(), e.control_inputs.end());
    e.control_inputs.erase(std::unique(e.control_inputs.begin(), e.control_inputs.end()),
                           e.control_inputs.end());
    uint64_t hash = e.hash();
    auto [first, last] = seen.equal_range(hash);
    auto same = std::find_if(first, last, [&](const auto& entry) { return entry.second == e; });
    if (same == last) {
      seen.emplace(hash, std::move(e));
      continue;
    }
    stands_for[index(id)] = static_cast<NodeId>(same->second.node - graph.nodes().data());
    node.erased = true;
    changed = true;
  }
  if (!changed) return false;
  // Back edges of loops were not followed.
  for (SubNode& node : graph.nodes()) {
    for (Output& input : node.inputs) input.node = stands_for[index(input.node)];
  }
  graph.compact();
  return true;
}

}  // namespace millrace
