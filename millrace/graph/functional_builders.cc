#include "millrace/graph/functional_builders.h"

#include <algorithm>
#include <memory>

namespace millrace {
namespace {

constexpr std::string_view kSavedOutputs = "_saved_outputs";

bool same(Expr a, Expr b) {
  return a.builder() == b.builder() && a.id() == b.id() && a.index() == b.index();
}

// A function in the making, and the results of its code.
struct Part {
  explicit Part(GraphBuilder& outer) : inside(outer) {}
  FunctionBuilder inside;
  std::vector<Expr> parameters;
  std::vector<Expr> results;
};

Status build(Part& part, BuildFunction code) {
  part.results = code(part.inside, part.parameters);
  for (Expr& result : part.results) {
    MR_TRY(part.inside.status());
    result = part.inside.import(result);
  }
  return part.inside.status();
}

// The enclosing tensors that any part uses, in order of first use.
std::vector<Expr> all_captures(std::span<const std::unique_ptr<Part>> parts) {
  std::vector<Expr> out;
  for (const auto& part : parts) {
    for (const FunctionBuilder::Capture& capture : part->inside.captures()) {
      const Graph& graph = part->inside.graph();
      if (!graph.node(GraphBuilder::output(capture.inner).node).op().traits.argument) continue;
      auto known = [&](Expr e) { return same(e, capture.outer); };
      if (std::none_of(out.begin(), out.end(), known)) out.push_back(capture.outer);
    }
  }
  return out;
}

// The part's parameters, then one for each of `captures`, used or not.
Result<std::vector<Output>> parameters_of(Part& part, std::span<const Expr> captures) {
  std::vector<Output> out;
  for (Expr parameter : part.parameters) out.push_back(GraphBuilder::output(parameter));
  for (Expr outer : captures) {
    Expr inner;
    for (const FunctionBuilder::Capture& capture : part.inside.captures()) {
      if (same(capture.outer, outer)) inner = capture.inner;
    }
    if (!inner.valid()) {
      const Output source = GraphBuilder::output(outer);
      const Graph& graph = part.inside.outer().graph();
      TensorFacts facts = graph.facts(source);
      facts.constant = nullptr;
      inner = part.inside.add_parameter("unused", graph.output_type(source), std::move(facts));
    }
    if (!inner.valid()) return part.inside.status();
    out.push_back(GraphBuilder::output(inner));
  }
  return out;
}

std::vector<Output> outputs_of(std::span<const Expr> tensors) {
  std::vector<Output> out;
  for (Expr tensor : tensors) out.push_back(GraphBuilder::output(tensor));
  return out;
}

// References keep their type: that is how a branch can assign to a variable around it.
std::vector<DType> types_of(const GraphBuilder& builder, std::span<const Expr> tensors) {
  std::vector<DType> out;
  for (Expr tensor : tensors) {
    out.push_back(builder.graph().output_type(GraphBuilder::output(tensor)));
  }
  return out;
}

// Adds a node under `name`; its outputs.
Result<std::vector<Expr>> add_node(GraphBuilder& builder, std::string_view op,
                                   std::string_view name, std::span<const Expr> inputs,
                                   AttrMap attrs) {
  std::optional<std::vector<Output>> own = builder.import_inputs(op, inputs);
  if (!own) return builder.status();
  MR_TRY_ASSIGN(NodeId id, builder.add(op, name, *std::move(own), std::move(attrs)));
  std::vector<Expr> out;
  for (int i = 0; i < builder.graph().node(id).num_outputs(); ++i) {
    out.push_back(builder.expr({id, i}));
  }
  return out;
}

std::string list_types(std::span<const Expr> tensors) {
  std::vector<DType> types;
  for (Expr tensor : tensors) types.push_back(tensor.dtype());
  return str_cat("(", str_join(types, ", "), ")");
}

bool is_stateful(const Part& part) {
  const Graph& graph = part.inside.graph();
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const OpTraits& traits = graph.node(id).op().traits;
    if (traits.stateful && !traits.argument) return true;
  }
  return false;
}

Result<std::vector<Expr>> branches(GraphBuilder& builder, Expr selector,
                                   std::span<const BuildFunction> code, std::string_view name,
                                   bool is_if) {
  MR_TRY(builder.status());
  selector = builder.import(selector);
  MR_TRY(builder.status());
  std::vector<std::unique_ptr<Part>> parts;
  for (BuildFunction branch : code) {
    parts.push_back(std::make_unique<Part>(builder));
    MR_TRY(build(*parts.back(), branch));
  }
  const std::vector<Expr>& first = parts[0]->results;
  std::vector<DType> out_types;
  std::vector<PartialShape> shapes;
  for (Expr result : first) {
    out_types.push_back(result.dtype());
    shapes.push_back(result.shape());
  }
  bool stateful = false;
  for (size_t b = 0; b < parts.size(); ++b) {
    stateful |= is_stateful(*parts[b]);
    const std::vector<Expr>& results = parts[b]->results;
    bool fits = results.size() == first.size();
    for (size_t i = 0; fits && i < first.size(); ++i) fits = results[i].dtype() == out_types[i];
    if (!fits) {
      return invalid_argument("the branches must give the same: branch 0 gives ", list_types(first),
                              ", branch ", b, " gives ", list_types(results));
    }
    for (size_t i = 0; i < first.size(); ++i) {
      shapes[i] = shapes[i].common(results[i].shape());
    }
  }
  std::vector<Expr> captures = all_captures(parts);
  std::vector<FunctionAttr> functions;
  for (size_t b = 0; b < parts.size(); ++b) {
    MR_TRY_ASSIGN(std::vector<Output> parameters, parameters_of(*parts[b], captures));
    std::string suffix = is_if ? (b == 0 ? "_true" : "_false") : str_cat("_branch_", b);
    MR_TRY_ASSIGN(std::string function, parts[b]->inside.finish(str_cat(name, suffix), parameters,
                                                                outputs_of(parts[b]->results)));
    functions.push_back({function, {}});
  }
  std::vector<Expr> inputs = {selector};
  inputs.insert(inputs.end(), captures.begin(), captures.end());
  AttrMap attrs = {
      {"Tin", types_of(builder, captures)}, {"Tout", out_types}, {"output_shapes", shapes}};
  if (is_if) {
    attrs.set("then_branch", functions[0]);
    attrs.set("else_branch", functions[1]);
    return add_node(builder, stateful ? "If" : "StatelessIf", name, inputs, std::move(attrs));
  }
  attrs.set("branches", functions);
  return add_node(builder, stateful ? "Case" : "StatelessCase", name, inputs, std::move(attrs));
}

// What the variables are inside the loop.
Result<std::vector<PartialShape>> invariants(std::span<const Expr> initial,
                                             const WhileOptions& options) {
  std::vector<PartialShape> out;
  if (options.shape_invariants.empty()) {
    for (Expr v : initial) out.push_back(v.shape());
    return out;
  }
  if (options.shape_invariants.size() != initial.size()) {
    return invalid_argument("expected a shape invariant for each of ", initial.size(),
                            " loop variables, got ", options.shape_invariants.size());
  }
  for (size_t i = 0; i < initial.size(); ++i) {
    const PartialShape& invariant = options.shape_invariants[i];
    if (!initial[i].shape().compatible(invariant)) {
      return invalid_argument("loop variable ", i, " has the shape invariant ", invariant,
                              " but comes in with shape ", initial[i].shape());
    }
    out.push_back(invariant);
  }
  return out;
}

// Whether everything that has shape `shape` has shape `invariant`.
bool covers(const PartialShape& invariant, const PartialShape& shape) {
  return invariant.common(shape) == invariant;
}

Result<std::vector<Expr>> loop(GraphBuilder& builder, std::span<const Expr> given,
                               BuildFunction condition, BuildFunction body,
                               const WhileOptions& options) {
  MR_TRY(builder.status());
  std::vector<Expr> initial;
  for (Expr v : given) {
    initial.push_back(builder.import(v));
    MR_TRY(builder.status());
  }
  MR_TRY_ASSIGN(std::vector<PartialShape> shapes, invariants(initial, options));
  std::vector<std::unique_ptr<Part>> parts;
  for (BuildFunction code : {body, condition}) {
    parts.push_back(std::make_unique<Part>(builder));
    Part& part = *parts.back();
    for (size_t i = 0; i < initial.size(); ++i) {
      const Output source = GraphBuilder::output(initial[i]);
      TensorFacts facts = {.shape = shapes[i], .resource = builder.graph().facts(source).resource};
      part.parameters.push_back(part.inside.add_parameter(
          str_cat("variable_", i), builder.graph().output_type(source), std::move(facts)));
    }
    MR_TRY(part.inside.status());
    MR_TRY(build(part, code));
  }
  Part& round = *parts[0];
  Part& test = *parts[1];
  if (test.results.size() != 1 || test.results[0].dtype() != DType::kBool) {
    return invalid_argument("the condition of a loop must give one bool, got ",
                            list_types(test.results));
  }
  if (round.results.size() != initial.size()) {
    return invalid_argument("the body must give as many variables as it takes: ", initial.size(),
                            ", got ", round.results.size());
  }
  for (size_t i = 0; i < initial.size(); ++i) {
    Expr result = round.results[i];
    if (result.dtype() != initial[i].dtype()) {
      return invalid_argument("loop variable ", i, " is ", initial[i].dtype(),
                              ", but the body makes it ", result.dtype());
    }
    if (!options.trust_shapes && !covers(shapes[i], result.shape())) {
      return invalid_argument("loop variable ", i, " enters the loop with shape ", shapes[i],
                              ", but has shape ", result.shape(),
                              " after one iteration: give shape_invariants that cover both");
    }
  }
  std::vector<Expr> captures = all_captures(parts);
  MR_TRY_ASSIGN(std::vector<Output> body_parameters, parameters_of(round, captures));
  MR_TRY_ASSIGN(std::vector<Output> test_parameters, parameters_of(test, captures));
  std::vector<Output> body_results = outputs_of(round.results);
  // What is captured goes round unchanged.
  body_results.insert(body_results.end(),
                      body_parameters.begin() + static_cast<ptrdiff_t>(initial.size()),
                      body_parameters.end());
  MR_TRY_ASSIGN(std::string body_name,
                round.inside.finish(str_cat(options.name, "_body"), body_parameters, body_results));
  MR_TRY_ASSIGN(std::string test_name,
                test.inside.finish(str_cat(options.name, "_cond"), test_parameters,
                                   outputs_of(test.results)));
  std::vector<Expr> inputs = initial;
  inputs.insert(inputs.end(), captures.begin(), captures.end());
  for (Expr capture : captures) shapes.push_back(capture.shape());
  bool stateful = is_stateful(round) || is_stateful(test);
  MR_TRY_ASSIGN(std::vector<Expr> outputs,
                add_node(builder, stateful ? "While" : "StatelessWhile", options.name, inputs,
                         {{"T", types_of(builder, inputs)},
                          {"cond", FunctionAttr{test_name, {}}},
                          {"body", FunctionAttr{body_name, {}}},
                          {"output_shapes", shapes},
                          {"parallel_iterations", options.parallel_iterations}}));
  outputs.resize(initial.size());
  return outputs;
}

std::vector<Expr> or_fail(GraphBuilder& builder, std::string_view name,
                          Result<std::vector<Expr>> outputs) {
  if (outputs.ok()) return *std::move(outputs);
  if (builder.status().ok()) {
    Status status =
        outputs.status().with_prefix(str_cat("\"", builder.context().scope, name, "\""));
    std::string where = describe_origin(builder.context().origin);
    builder.fail(where.empty() ? status : status.with_line(where));
  }
  return {};
}

}  // namespace

Expr element_shape(OpBuilder& builder, const PartialShape& shape) {
  if (!shape.rank_known()) return builder.constant(Tensor::scalar<int32_t>(-1));
  std::vector<int32_t> dims;
  for (int64_t d : shape.dims()) dims.push_back(d > INT32_MAX ? -1 : static_cast<int32_t>(d));
  return builder.constant(Tensor::vector<int32_t>(dims));
}

Result<int64_t> saved_outputs(const AttrMap& attrs) {
  if (attrs.find(kSavedOutputs) == nullptr) return 0;
  return read_attr<int64_t>(attrs, kSavedOutputs);
}

Status add_saved_outputs(AttrMap& attrs, int64_t more) {
  MR_TRY_ASSIGN(int64_t before, saved_outputs(attrs));
  attrs.set(kSavedOutputs, before + more);
  return ok_status();
}

std::vector<Expr> add_if(GraphBuilder& builder, Expr predicate, BuildFunction then_branch,
                         BuildFunction else_branch, std::string_view name) {
  const BuildFunction code[] = {then_branch, else_branch};
  return or_fail(builder, name, branches(builder, predicate, code, name, /*is_if=*/true));
}

std::vector<Expr> add_case(GraphBuilder& builder, Expr index, std::span<const BuildFunction> code,
                           std::string_view name) {
  if (code.empty()) {
    builder.fail(invalid_argument("\"", name, "\": a case needs at least one branch"));
    return {};
  }
  return or_fail(builder, name, branches(builder, index, code, name, /*is_if=*/false));
}

std::vector<Expr> add_while(GraphBuilder& builder, std::span<const Expr> initial,
                            BuildFunction condition, BuildFunction body,
                            const WhileOptions& options) {
  return or_fail(builder, options.name, loop(builder, initial, condition, body, options));
}

}  // namespace millrace
