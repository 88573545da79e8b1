#include "millrace/autodiff/aggregate.h"

#include <algorithm>

namespace millrace {
namespace {

// What the handle x holds; null where that is not known, and where x is no handle.
const ResourceHandle::DTypeAndShape* held_by(Expr x) {
  if (x.dtype() != DType::kResource) return nullptr;
  const auto& builder = static_cast<const GraphBuilder&>(*x.builder());
  const auto& held = builder.graph().facts(GraphBuilder::output(x)).resource;
  return held.empty() ? nullptr : &held[0];
}

}  // namespace

Expr zero_gradient(Expr x) {
  if (!x.valid() || x.dtype() != DType::kResource) return zeros_like(x);
  const auto* held = held_by(x);
  if (held == nullptr) {
    x.builder()->fail(invalid_argument("zeros for a handle: the type it holds is not known"));
    return Expr();
  }
  Expr zero = cast(int32_scalar(*x.builder(), 0), held->dtype);
  return fill(call("VariableShape", {x}), zero);
}

Expr gradient_shape(Expr x) {
  if (x.dtype() != DType::kResource) return shape_of(x, DType::kInt64);
  return call("VariableShape", {x}, {{"out_type", DType::kInt64}});
}

PartialShape known_gradient_shape(Expr x) {
  if (x.dtype() != DType::kResource) return x.shape();
  const auto* held = held_by(x);
  return held == nullptr ? PartialShape::unknown() : held->shape;
}

Gradient sum_gradients(const std::vector<Gradient>& gradients) {
  if (gradients.empty()) return {};
  if (gradients.size() == 1) return gradients[0];
  if (std::all_of(gradients.begin(), gradients.end(),
                  [](const Gradient& g) { return g.is_slices(); })) {
    std::vector<Expr> values, indices;
    DType index_type = DType::kInt32;
    for (const Gradient& g : gradients) {
      if (g.indices.dtype() == DType::kInt64) index_type = DType::kInt64;
    }
    for (const Gradient& g : gradients) {
      values.push_back(g.values);
      indices.push_back(cast(g.indices, index_type));
    }
    return {concat(values, 0), concat(indices, 0), gradients[0].dense_shape};
  }
  std::vector<Expr> dense;
  for (const Gradient& g : gradients) dense.push_back(to_dense(g));
  return {call("AddN", dense), {}, {}};
}

Status gate(GraphBuilder& builder, std::span<Expr> tensors) {
  std::vector<NodeId> all;
  for (Expr e : tensors) {
    if (e.valid()) all.push_back(GraphBuilder::output(e).node);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() < 2) return ok_status();
  const std::vector<NodeId> before = builder.context().control_inputs;
  builder.context().control_inputs.insert(builder.context().control_inputs.end(), all.begin(),
                                          all.end());
  const Result<NodeId> together = builder.add("NoOp", "group_deps", {});
  if (together.ok()) {
    builder.context().control_inputs = before;
    builder.context().control_inputs.push_back(*together);
    for (Expr& e : tensors) {
      if (e.valid()) e = identity(e);
    }
  }
  builder.context().control_inputs = before;
  MR_TRY(together.status());
  return builder.status();
}

}  // namespace millrace
