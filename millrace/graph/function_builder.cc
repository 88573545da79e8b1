#include "millrace/graph/function_builder.h"

namespace millrace {
namespace {

// Constants up to this size are copied into functions, where shape rules see their values.
constexpr int64_t kCopiedElements = 64;

}  // namespace

FunctionBuilder::FunctionBuilder(GraphBuilder& outer)
    : FunctionBuilder(
          outer, make_ref<Graph>(outer.graph().registry(), outer.graph().shared_functions())) {}

FunctionBuilder::FunctionBuilder(GraphBuilder& outer, Ref<Graph> graph)
    : GraphBuilder(*graph), own_graph_(std::move(graph)), outer_(outer) {
  context().origin = outer.context().origin;
}

Expr FunctionBuilder::add_parameter(std::string_view name, DType type, TensorFacts facts) {
  if (!status().ok()) return Expr();
  Context before = context();
  context() = {.origin = before.origin};
  Result<NodeId> id = add("_Arg", name, {}, {{"T", type}, {"index", num_parameters_}});
  context() = std::move(before);
  Status set = id.ok() ? graph().set_argument_facts(*id, std::move(facts)) : id.status();
  if (!set.ok()) {
    fail(set);
    return Expr();
  }
  ++num_parameters_;
  return expr({*id, 0});
}

Expr FunctionBuilder::import(Expr e) {
  if (e.builder() == this) return e;
  if (!e.valid()) return GraphBuilder::import(e);
  if (e.builder() != &outer_) {
    e = outer_.import(e);
    if (!e.valid()) {
      fail(outer_.status());
      return Expr();
    }
  }
  for (const Capture& known : captures_) {
    if (known.outer.id() == e.id() && known.outer.index() == e.index()) return known.inner;
  }
  Expr inner = capture(e);
  if (inner.valid()) captures_.push_back({e, inner});
  return inner;
}

Expr FunctionBuilder::capture(Expr e) {
  const Graph& from = outer_.graph();
  const Output source = output(e);
  const Node& node = from.node(source.node);
  const DType type = base_type(from.output_type(source));
  if (node.op().traits.constant && (copies_all_ || !(kFloating | kComplex).contains(type))) {
    Result<Tensor> value = node.attr<Tensor>("value");
    if (value.ok() && value->num_elements() <= kCopiedElements) return constant(*value);
  }
  TensorFacts facts = from.facts(source);
  facts.constant = nullptr;
  return add_parameter(str_cat("captured_", captures_.size()), from.output_type(source),
                       std::move(facts));
}

Result<std::string> FunctionBuilder::finish(std::string_view name,
                                            std::span<const Output> arguments,
                                            std::span<const Output> results,
                                            std::span<const NodeId> effects) {
  MR_TRY(status());
  FunctionLibrary& library = graph().functions();
  std::string unique = library.unique_name(name);
  MR_TRY_ASSIGN(Ref<Function> function,
                function_from_graph(graph(), unique, arguments, results, effects));
  MR_TRY(library.add(std::move(function)));
  return unique;
}

}  // namespace millrace
