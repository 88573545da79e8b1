#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/str_cat.h"
#include "millrace/runtime/optimize.h"

// Lets an op that takes a matrix transposed, where an attribute says so, do what a Transpose before
// it does: MatMul(Transpose(x), y) is MatMul(x, y, transpose_a). Such an attribute is a bool called
// transpose_NAME, for the argument NAME, a matrix; or adj_NAME, for matrices in the last two
// dimensions, which are conjugated too.

namespace millrace {
namespace {

// The attribute that has input `i` transposed; null when there is none.
const AttrDef* transposing_attr(const OpDef& op, size_t i) {
  for (size_t arg = 0; arg <= i; ++arg) {
    if (arg >= op.inputs.size() || op.inputs[arg].is_list()) return nullptr;
  }
  for (const char* prefix : {"transpose_", "adj_"}) {
    const AttrDef* attr = op.find_attr(str_cat(prefix, op.inputs[i].name));
    if (attr != nullptr && attr->type == "bool") return attr;
  }
  return nullptr;
}

// The elements of a constant that is always there, into a loop too; none for others.
std::vector<int64_t> constant_list(const Subgraph& graph, Output from) {
  const SubNode* node = &graph.node(from.node);
  if (node->op->traits.control_flow == ControlFlow::kEnter) {
    const Result<bool> every = node->attr<bool>("is_constant");
    if (!every.ok() || !*every || !node->control_inputs.empty()) return {};
    node = &graph.node(node->inputs[0].node);
  }
  if (!node->op->traits.constant || !node->control_inputs.empty()) return {};
  const Result<Tensor> list = node->attr<Tensor>("value");
  if (!list.ok() || list->rank() != 1) return {};
  if (list->dtype() == DType::kInt32) {
    return {list->data<int32_t>().begin(), list->data<int32_t>().end()};
  }
  if (list->dtype() != DType::kInt64) return {};
  return {list->data<int64_t>().begin(), list->data<int64_t>().end()};
}

// Whether it swaps the last two dimensions and leaves the others.
bool swaps_last_two(const std::vector<int64_t>& permutation) {
  const size_t rank = permutation.size();
  if (rank < 2) return false;
  for (size_t d = 0; d < rank; ++d) {
    const size_t from = d + 2 < rank ? d : 2 * rank - 3 - d;
    const int64_t axis =
        permutation[d] < 0 ? permutation[d] + static_cast<int64_t>(rank) : permutation[d];
    if (axis != static_cast<int64_t>(from)) return false;
  }
  return true;
}

// What input i of the node reads when the attribute is turned round.
std::optional<Output> untransposed(const Subgraph& graph, const SubNode& node, size_t i,
                                   const AttrDef& attr) {
  const SubNode& transpose = graph.node(node.inputs[i].node);
  if (!transpose.op->traits.permutes || transpose.device != node.device ||
      !transpose.control_inputs.empty()) {
    return std::nullopt;
  }
  const Output x = transpose.inputs[0];
  if (is_ref(graph.output_type(x)) ||
      graph.node(x.node).op->traits.control_flow == ControlFlow::kNextIteration) {
    return std::nullopt;
  }
  const std::vector<int64_t> permutation = constant_list(graph, transpose.inputs[1]);
  if (!swaps_last_two(permutation)) return std::nullopt;
  const bool fits = attr.name.starts_with("adj_") ? !kComplex.contains(graph.output_type(x))
                                                  : permutation.size() == 2;
  return fits ? std::optional(x) : std::nullopt;
}

}  // namespace

Result<bool> fold_transposes(Subgraph& graph, const OptimizeOptions&) {
  bool changed = false;
  for (SubNode& node : graph.nodes()) {
    if (node.erased || node.op->attrs.empty()) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const AttrDef* attr = transposing_attr(*node.op, i);
      if (attr == nullptr) continue;
      const std::optional<Output> x = untransposed(graph, node, i, *attr);
      if (!x) continue;
      MR_TRY_ASSIGN(const bool transposed, node.attr<bool>(attr->name));
      node.set_attr(attr->name, !transposed);
      node.inputs[i] = *x;
      changed = true;
    }
  }
  return changed;
}

}  // namespace millrace
