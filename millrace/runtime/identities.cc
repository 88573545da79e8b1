#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "millrace/runtime/optimize.h"
#include "millrace/tensor/dispatch.h"

// Takes nodes out of the way that hand their input on: x * 1, x - 0, a Reshape to the shape there
// is, a sum over no axes, two Transposes that undo each other.

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

// Whether `tensor` is nothing but the neutral element.
bool is_neutral(const Tensor& tensor, Neutral neutral) {
  bool all = false;
  const float number = neutral == Neutral::kOne ? 1.0F : neutral == Neutral::kZero ? 0.0F : -0.0F;
  const auto check = [&]<class T>() {
    const T wanted = static_cast<T>(number);
    const auto data = tensor.data<T>();
    // By their bits: 0 equals -0.
    all = std::all_of(data.begin(), data.end(),
                      [&](const T& v) { return std::memcmp(&v, &wanted, sizeof(T)) == 0; });
  };
  using Types = ConcatTypes<RealTypes, TypeList<bool>>;
  return dispatch<Types>(tensor.dtype(), check).ok() && all;
}

// Whether x broadcast with a tensor of shape `other` keeps its own shape.
bool keeps_shape(const PartialShape& x, const Shape& other) {
  if (other.rank() == 0) return true;
  if (!x.rank_known() || other.rank() > x.rank()) return false;
  for (int i = 0; i < other.rank(); ++i) {
    if (other.dim(i) != 1 && other.dim(i) != x.dim(x.rank() - other.rank() + i)) return false;
  }
  return true;
}

class Remover {
 public:
  Remover(Subgraph& graph, const OptimizeOptions& options, bool real)
      : graph_(graph), options_(options), real_(real) {}

  Result<bool> run() {
    // Most graphs have nothing of the kind, and shapes are not free.
    std::vector<NodeId> candidates;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (is_candidate(graph_.node(id))) candidates.push_back(id);
    }
    if (candidates.empty()) return false;
    MR_TRY_ASSIGN(facts_, graph_.facts());
    source_.resize(index(graph_.size()));
    bool any = false;
    for (NodeId id : candidates) {
      source_[index(id)] = input_handed_on(graph_.node(id));
      any |= source_[index(id)].has_value();
    }
    return any && rewire();
  }

 private:
  // The value of input i where it is a constant that is always there: a node that reads it is dead
  // exactly when its other inputs are.
  const Tensor* constant(const SubNode& node, size_t i) const {
    const SubNode* from = &graph_.node(node.inputs[i].node);
    if (from->op->traits.control_flow == ControlFlow::kEnter) {
      // Into a loop, for every iteration.
      Result<bool> every = from->attr<bool>("is_constant");
      if (!every.ok() || !*every || !from->control_inputs.empty()) return nullptr;
      from = &graph_.node(from->inputs[0].node);
    }
    if (!from->op->traits.constant || !from->control_inputs.empty()) return nullptr;
    const AttrValue* value = from->attrs->find("value");
    const TensorAttr* tensor = value != nullptr ? value->get<TensorAttr>() : nullptr;
    return tensor != nullptr && tensor->tensor.valid() ? &tensor->tensor : nullptr;
  }

  // What can be said without shapes.
  bool is_candidate(const SubNode& node) const {
    const OpTraits& t = node.op->traits;
    if (node.erased || node.inputs.empty() || !node.control_inputs.empty() || t.stateful ||
        node.output_types.size() != 1 || is_ref(node.output_types[0])) {
      return false;
    }
    if (t.neutral != Neutral::kNone) return neutral_input(node) >= 0;
    if (real_ || !(t.same_when_same_shape || t.permutes || t.same_when_empty != 0)) return false;
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (constant(node, i) == nullptr) return false;
    }
    return true;
  }

  // The input that the node's output is, bit for bit.
  std::optional<Output> input_handed_on(const SubNode& node) const {
    const OpTraits& t = node.op->traits;
    std::optional<Output> from;
    if (t.neutral != Neutral::kNone) {
      const size_t neutral = static_cast<size_t>(neutral_input(node));
      const Output x = node.inputs[1 - neutral];
      if (keeps_shape(facts_->of(x).shape, constant(node, neutral)->shape())) from = x;
    } else if ((t.same_when_same_shape && has_same_shape(node)) || has_nothing_to_do(node)) {
      from = node.inputs[0];
    } else if (t.permutes) {
      from = unpermuted(node);
    }
    return from && may_read(node, *from) ? from : std::nullopt;
  }

  // Which of two operands leaves the other as it is; -1: none.
  int neutral_input(const SubNode& node) const {
    const TypeSet types = real_ ? kFloating : kIntegers | TypeSet{DType::kBool};
    if (node.inputs.size() != 2 || !types.contains(node.output_types[0])) return -1;
    const auto is_neutral_input = [&](size_t i) {
      const Tensor* value = constant(node, i);
      return value != nullptr &&
             static_cast<int64_t>(value->bytes()) <= options_.max_constant_bytes &&
             is_neutral(*value, node.op->traits.neutral);
    };
    if (is_neutral_input(1)) return 1;
    return node.op->traits.commutative && is_neutral_input(0) ? 0 : -1;
  }

  bool has_same_shape(const SubNode& node) const {
    const PartialShape& before = facts_->of(node.inputs[0]).shape;
    return before.fully_known() && before == facts_->of({id_of(node), 0}).shape;
  }

  bool has_nothing_to_do(const SubNode& node) const {
    for (size_t i = 1; i < node.inputs.size() && i < 32; ++i) {
      if ((node.op->traits.same_when_empty >> i & 1) == 0) continue;
      const Tensor* list = constant(node, i);
      if (list != nullptr && list->rank() == 1 && list->num_elements() == 0) return true;
    }
    return false;
  }

  // The order of dimensions in input 1, when the rule has taken it for a good one.
  std::vector<int64_t> permutation(const SubNode& node) const {
    const std::optional<PartialValue>& value = facts_->of(node.inputs[1]).value;
    const PartialShape& x = facts_->of(node.inputs[0]).shape;
    const PartialShape& y = facts_->of({id_of(node), 0}).shape;
    if (!value || !value->fully_known() || !x.rank_known() || !y.rank_known() ||
        static_cast<int>(value->elements.size()) != x.rank()) {
      return {};
    }
    std::vector<int64_t> out;
    for (const auto& element : value->elements) {
      const int64_t axis = *element < 0 ? *element + x.rank() : *element;
      if (axis < 0 || axis >= x.rank()) return {};
      out.push_back(axis);
    }
    return out;
  }

  std::optional<Output> unpermuted(const SubNode& node) const {
    std::vector<int64_t> order = permutation(node);
    if (order.empty()) return std::nullopt;
    if (std::is_sorted(order.begin(), order.end())) return node.inputs[0];
    const SubNode& before = graph_.node(node.inputs[0].node);
    if (!before.op->traits.permutes || !is_candidate(before)) return std::nullopt;
    const std::vector<int64_t> first = permutation(before);
    if (first.size() != order.size()) return std::nullopt;
    for (int64_t& axis : order) axis = first[static_cast<size_t>(axis)];
    return std::is_sorted(order.begin(), order.end()) ? std::optional(before.inputs[0])
                                                      : std::nullopt;
  }

  // Whether those who read the node may read `from`.
  bool may_read(const SubNode& node, Output from) const {
    const SubNode& source = graph_.node(from.node);
    return graph_.output_type(from) == node.output_types[0] && source.device == node.device &&
           source.op->traits.control_flow != ControlFlow::kNextIteration;
  }

  NodeId id_of(const SubNode& node) const {
    return static_cast<NodeId>(&node - graph_.nodes().data());
  }

  Output resolve(Output o) const {
    while (o.index == 0 && source_[index(o.node)]) o = *source_[index(o.node)];
    return o;
  }

  bool rewire() {
    bool changed = false;
    for (SubNode& node : graph_.nodes()) {
      if (node.erased) continue;
      for (Output& input : node.inputs) {
        const Output from = resolve(input);
        changed |= from != input;
        input = from;
      }
      for (NodeId& c : node.control_inputs) {
        // One output of a Switch may be dead though the Switch is not: then the node is still
        // waited for.
        const NodeId from = resolve({c, 0}).node;
        if (from == c || graph_.node(from).op->traits.control_flow == ControlFlow::kSwitch)
          continue;
        c = from;
        changed = true;
      }
    }
    return changed;
  }

  Subgraph& graph_;
  const OptimizeOptions& options_;
  const bool real_;
  const SubgraphFacts* facts_ = nullptr;
  std::vector<std::optional<Output>> source_;  // by node: what its output is as well
};

}  // namespace

Result<bool> remove_identities(Subgraph& graph, const OptimizeOptions& options) {
  return Remover(graph, options, /*real=*/false).run();
}

Result<bool> remove_real_identities(Subgraph& graph, const OptimizeOptions& options) {
  return Remover(graph, options, /*real=*/true).run();
}

}  // namespace millrace
