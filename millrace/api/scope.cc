#include "millrace/api/scope.h"

#include "millrace/ops/register_ops.h"

namespace millrace {

Scope Scope::make_root() {
  Scope scope(make_ref<Graph>());
  const Status status = register_ops();
  if (!status.ok()) scope.builder().fail(status);
  return scope;
}

Scope::Scope(Ref<Graph> graph) {
  auto own = std::make_unique<GraphBuilder>(*graph);
  GraphBuilder& builder = *own;
  shared_ = std::make_shared<Shared>(Shared{std::move(graph), std::move(own), builder});
}

Scope::Scope(GraphBuilder& builder)
    : shared_(std::make_shared<Shared>(Shared{Ref<Graph>(&builder.graph()), nullptr, builder})),
      context_(builder.context()) {}

Scope Scope::sub_scope(std::string_view name) const {
  Scope out = *this;
  out.next_name_.clear();
  if (!is_valid_scope_name(name)) {
    builder().fail(invalid_argument("'", name, "' cannot be the name of a scope"));
    return out;
  }
  out.context_.scope = str_cat(graph()->unique_name(str_cat(context_.scope, name)), "/");
  return out;
}

Scope Scope::with_name(std::string_view name) const {
  Scope out = *this;
  out.next_name_ = name;
  return out;
}

Scope Scope::with_device(std::string_view device) const {
  Scope out = *this;
  out.context_.device = device;
  return out;
}

Scope Scope::with_control(std::span<const Operation> operations) const {
  Scope out = *this;
  for (const Operation& operation : operations) {
    if (operation.valid()) out.context_.control_inputs.push_back(operation.node);
  }
  return out;
}

Scope Scope::colocated_with(Expr tensor) const {
  Scope out = *this;
  if (tensor.valid()) {
    out.context_.colocate_with.push_back(graph()->node(GraphBuilder::output(tensor).node).name());
  }
  return out;
}

Operation Scope::add(std::string_view op, std::vector<Expr> inputs, AttrMap attrs,
                     SourceLocation where) const {
  GraphBuilder& b = builder();
  if (!b.status().ok()) return {};
  std::optional<std::vector<Output>> outputs = b.import_inputs(op, inputs);
  if (!outputs) return {};
  Result<NodeId> node = build(where, [&](GraphBuilder& builder) {
    return builder.add(op, next_name_, *std::move(outputs), std::move(attrs));
  });
  if (!node.ok()) {
    b.fail(node.status());
    return {};
  }
  return {*node, graph()->node(*node).name()};
}

Expr Scope::output(const Operation& operation, int index) const {
  if (!operation.valid()) return Expr();
  return builder().expr({operation.node, index});
}

std::vector<Expr> Scope::outputs(const Operation& operation) const {
  std::vector<Expr> out;
  if (!operation.valid()) return out;
  for (int i = 0; i < graph()->node(operation.node).num_outputs(); ++i) {
    out.push_back(output(operation, i));
  }
  return out;
}

Expr Scope::constant(Tensor value, SourceLocation where) const {
  DType dtype = value.dtype();
  return output(add("Const", {}, {{"value", std::move(value)}, {"dtype", dtype}}, where), 0);
}

std::string Scope::name_of(Expr tensor) const {
  return tensor.valid() ? graph()->output_name(GraphBuilder::output(tensor)) : std::string();
}

Operation Scope::operation_of(Expr tensor) const {
  if (!tensor.valid()) return {};
  NodeId node = GraphBuilder::output(tensor).node;
  return {node, graph()->node(node).name()};
}

}  // namespace millrace
