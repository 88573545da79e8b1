#include "millrace/autodiff/backward_function.h"

#include <algorithm>

#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/inline_body.h"

namespace millrace {
namespace {

// Whether a second run of such a node gives something else, although nothing flows back through it.
bool is_drawn(const OpDef& op) {
  const OpTraits& t = op.traits;
  return t.stateful && op.gradient == nullptr && t.functional == FunctionalOp::kNone &&
         !t.owns_state && !t.step_state && !t.argument && !t.result;
}

// Whether a second run gives something else although gradients flow through it (RandomGamma).
bool is_drawn_with_gradient(const OpDef& op) {
  return op.traits.stateful && op.gradient != nullptr && op.find_attr("seed") != nullptr;
}

// Whether a second run of the graph would draw anew: it has nodes of the second kind, or a function
// that one of its nodes runs, at any depth, has nodes of either.
Result<bool> draws_anew(const Graph& graph) {
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (is_drawn_with_gradient(graph.node(id).op())) return true;
  }
  MR_TRY_ASSIGN(std::vector<Ref<Function>> reached, reachable_functions(graph));
  for (const Ref<Function>& function : reached) {
    for (const Function::BodyNode& node : function->nodes) {
      const OpDef* op = graph.registry().find(node.op);
      if (op != nullptr && (is_drawn(*op) || is_drawn_with_gradient(*op))) return true;
    }
  }
  return false;
}

}  // namespace

Expr BackwardBuilder::captured_from(Expr e) const {
  if (e.builder() != this) return e.builder() == &outer() ? e : Expr();
  for (const Capture& capture : captures()) {
    if (capture.inner.id() == e.id() && capture.inner.index() == e.index()) return capture.outer;
  }
  return Expr();
}

std::vector<Expr> BackwardBuilder::emit(std::string_view op, std::vector<Expr> inputs,
                                        AttrMap attrs) {
  if (inputs.size() == 1 && inputs[0].valid()) {
    Expr source = captured_from(inputs[0]);
    const OpDef* def = graph().registry().find(op);
    if (source.valid() && def != nullptr && def->traits.metadata_only) {
      std::vector<Expr> out = outer().emit(op, {source}, std::move(attrs));
      for (Expr& o : out) o = import(o);
      if (!outer().status().ok()) fail(outer().status());
      return out;
    }
    // Zeros or ones in the shape of a tensor whose elements nobody needs.
    bool zeros = op == "ZerosLike";
    if (source.valid() && (zeros || op == "OnesLike") && is_plain(source.dtype())) {
      Expr shape;
      if (Result<Shape> known = source.shape().to_shape(); known.ok()) {
        shape = constant(Tensor::vector<int64_t>(known->dims()));
      } else {
        shape = shape_of(inputs[0]);
      }
      return FunctionBuilder::emit("Fill", {shape, constant_like(inputs[0], zeros ? 0 : 1)}, {});
    }
  }
  return FunctionBuilder::emit(op, std::move(inputs), std::move(attrs));
}

BackwardFunction::BackwardFunction(const WalkContext& context, Ref<FunctionBody> body)
    : context_(context),
      options_(context.options),
      body_(std::move(body)),
      forward_(*body_->graph) {
  // Nothing inside changes a variable; the results wait for each other.
  options_.gate_operations = false;
  backward_ = std::make_unique<BackwardBuilder>(forward_);
  backward_->context().origin = context.backward.context().origin;
}

Result<std::unique_ptr<BackwardFunction>> BackwardFunction::create(
    const WalkContext& context, const FunctionAttr& function, std::span<const TensorFacts> facts) {
  Graph& graph = context.forward.graph();
  MR_TRY_ASSIGN(Ref<FunctionBody> body,
                graph.functions().instantiate(function.name, function.attrs, graph.registry()));
  if (!facts.empty() && facts.size() != body->args.size()) {
    return invalid_argument("function \"", function.name, "\" takes ", body->args.size(),
                            " arguments, got ", facts.size());
  }
  MR_TRY_ASSIGN(Ref<FunctionBody> copy, copy_body(*body, graph.shared_functions(), facts));
  return std::unique_ptr<BackwardFunction>(new BackwardFunction(context, std::move(copy)));
}

int BackwardFunction::argument_number(Output o) const {
  auto it = std::find(body_->args.begin(), body_->args.end(), o.node);
  return it == body_->args.end() ? -1 : static_cast<int>(it - body_->args.begin());
}

Status BackwardFunction::differentiate(const std::vector<bool>& given,
                                       const std::vector<bool>& wanted) {
  size_t num_results = body_->results.size();
  for (size_t i = 0; i < num_results; ++i) {
    if (!given[i]) {
      gradient_parameters_.push_back(Expr());
      continue;
    }
    const TensorFacts& facts = body_->graph->facts(result(i));
    gradient_parameters_.push_back(backward_->add_parameter(
        str_cat("gradient_", i), base_type(body_->result_types[i]), {.shape = facts.shape}));
  }
  MR_TRY(backward_->status());
  std::vector<Output> xs;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) xs.push_back({body_->args[i], 0});
  }
  std::vector<Output> ys;
  for (size_t i = 0; i < num_results; ++i) ys.push_back(result(i));
  bool again = context_.options.recompute;
  if (again) {
    MR_TRY_ASSIGN(bool draws, draws_anew(*body_->graph));
    again = !draws;
  }
  if (again) MR_TRY(run_again(xs, ys));
  GraphBuilder& walked = again ? *backward_ : forward_;
  GradientWalk walk({walked, *backward_, options_, context_.source}, ys, xs);
  for (size_t i = 0; i < num_results; ++i) {
    if (given[i]) walk.seed(ys[i], {gradient_parameters_[i], {}, {}});
  }
  MR_TRY_ASSIGN(std::vector<Gradient> found, walk.run());
  size_t next = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    argument_gradients_.push_back(wanted[i] ? found[next++] : Gradient());
  }
  MR_TRY(forward_.status());
  return backward_->status();
}

Status BackwardFunction::run_again(std::vector<Output>& xs, std::vector<Output>& ys) {
  const Graph& graph = *body_->graph;
  std::vector<Output> from;
  for (NodeId arg : body_->args) from.push_back({arg, 0});
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    for (int i = 0; i < node.num_outputs() && is_drawn(node.op()); ++i) from.push_back({id, i});
  }
  std::vector<Expr> args;
  for (Output o : from) args.push_back(backward_->import(forward_.expr(o)));
  MR_TRY(backward_->status());
  // Not before the gradient is there: iterations that run ahead would hold what they computed.
  GraphBuilder::Context before = backward_->context();
  for (Expr g : gradient_parameters_) {
    if (g.valid()) backward_->context().control_inputs = {GraphBuilder::output(g).node};
  }
  Result<std::vector<Expr>> made = inline_graph(*backward_, graph, from, args, ys);
  backward_->context() = std::move(before);
  MR_TRY(made.status());
  for (size_t i = 0; i < ys.size(); ++i) ys[i] = GraphBuilder::output((*made)[i]);
  for (Output& x : xs) {
    x = GraphBuilder::output(args[static_cast<size_t>(argument_number(x))]);
  }
  return ok_status();
}

Expr BackwardFunction::dense_argument_gradient(size_t i) {
  if (argument_gradients_[i].valid()) return to_dense(argument_gradients_[i]);
  return zero_gradient(backward_->import(forward_.expr({body_->args[i], 0})));
}

std::vector<BackwardFunction::Saved> BackwardFunction::saved(
    std::span<const Output> results) const {
  const Graph& graph = backward_->graph();
  std::vector<bool> used(static_cast<size_t>(graph.num_nodes()), false);
  std::vector<NodeId> todo;
  for (Output result : results) todo.push_back(result.node);
  while (!todo.empty()) {
    NodeId id = todo.back();
    todo.pop_back();
    if (used[static_cast<size_t>(id)]) continue;
    used[static_cast<size_t>(id)] = true;
    for (Output input : graph.node(id).inputs()) todo.push_back(input.node);
    for (NodeId control : graph.node(id).control_inputs()) todo.push_back(control);
  }
  std::vector<Saved> out;
  for (const FunctionBuilder::Capture& capture : backward_->captures()) {
    Output inner = GraphBuilder::output(capture.inner);
    if (!used[static_cast<size_t>(inner.node)] || !graph.node(inner.node).op().traits.argument) {
      continue;
    }
    out.push_back({GraphBuilder::output(capture.outer), inner});
  }
  return out;
}

Result<std::string> BackwardFunction::finish_forward(std::string_view name,
                                                     std::span<const Output> more_arguments,
                                                     std::span<const Output> more_results) {
  MR_TRY(forward_.status());
  std::vector<Output> arguments, results;
  for (NodeId arg : body_->args) arguments.push_back({arg, 0});
  for (size_t i = 0; i < body_->results.size(); ++i) results.push_back(result(i));
  arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
  results.insert(results.end(), more_results.begin(), more_results.end());
  FunctionLibrary& library = body_->graph->functions();
  std::string unique = library.unique_name(name);
  MR_TRY_ASSIGN(Ref<Function> function, function_from_graph(*body_->graph, unique, arguments,
                                                            results, body_->control_results));
  MR_TRY(library.add(std::move(function)));
  return unique;
}

}  // namespace millrace
