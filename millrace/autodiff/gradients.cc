#include "millrace/autodiff/gradients.h"

#include <optional>

#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/gradient_walk.h"
#include "millrace/autodiff/inline_body.h"
#include "millrace/autodiff/recompute.h"
#include "millrace/graph/function_builder.h"

namespace millrace {
namespace {

Result<std::vector<Output>> outputs_of(GraphBuilder& builder, std::span<const Expr> tensors,
                                       std::string_view what) {
  std::vector<Output> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].builder() != &builder) {
      return invalid_argument(what, " ", i,
                              tensors[i].valid() ? " is of another graph" : " is no tensor");
    }
    out.push_back(GraphBuilder::output(tensors[i]));
  }
  return out;
}

Result<Gradient> incoming(GraphBuilder& builder, Expr y, size_t i,
                          std::span<const Gradient> grad_ys) {
  std::string name = builder.graph().output_name(GraphBuilder::output(y));
  if (i < grad_ys.size() && grad_ys[i].valid()) {
    const Gradient& g = grad_ys[i];
    if (g.values.dtype() != y.dtype() && y.dtype() != DType::kResource) {
      return invalid_argument("the gradient of \"", name, "\" must be ", y.dtype(), ", got ",
                              g.values.dtype());
    }
    if (!g.is_slices() && !g.values.shape().compatible(y.shape())) {
      return invalid_argument("the gradient of \"", name, "\" must have shape ", y.shape(),
                              ", got ", g.values.shape());
    }
    return g;
  }
  if (!has_gradients(y.dtype()) || y.dtype() == DType::kResource || y.dtype() == DType::kVariant) {
    return invalid_argument("\"", name, "\" is ", y.dtype(),
                            ", which has no gradient of its own: expected a real or complex type");
  }
  return Gradient{ones_like(y), {}, {}};
}

}  // namespace

Result<std::vector<Gradient>> gradients(GraphBuilder& builder, std::span<const Expr> ys,
                                        std::span<const Expr> xs, std::span<const Gradient> grad_ys,
                                        const GradientOptions& options) {
  MR_TRY(builder.status());
  if (!grad_ys.empty() && grad_ys.size() != ys.size()) {
    return invalid_argument("expected a gradient for each of ", ys.size(), " ys, got ",
                            grad_ys.size());
  }
  MR_TRY_ASSIGN(std::vector<Output> y_outputs, outputs_of(builder, ys, "y"));
  MR_TRY_ASSIGN(std::vector<Output> x_outputs, outputs_of(builder, xs, "x"));
  MR_TRY_ASSIGN(std::vector<Output> stops,
                outputs_of(builder, options.stop_gradients, "stop gradient"));
  GraphBuilder::Context before = builder.context();
  std::string scope = builder.graph().unique_name(str_cat(before.scope, options.name));
  builder.context().scope = str_cat(scope, "/");
  Result<std::vector<Gradient>> result = [&]() -> Result<std::vector<Gradient>> {
    MR_TRY_ASSIGN(std::vector<Output> kept, outputs_of(builder, options.checkpoints, "checkpoint"));
    TensorSet checkpoints;
    for (Output o : kept) checkpoints.insert({o.node, o.index});
    if (kept.empty() && (options.recompute || options.memory_budget > 0)) {
      checkpoints =
          choose_checkpoints(builder.graph(), y_outputs, x_outputs, options.memory_budget);
    }
    GradientOptions inner = options;
    inner.recompute = !checkpoints.empty() || options.recompute;
    std::optional<Recomputation> recomputation;
    if (!checkpoints.empty()) recomputation.emplace(builder, y_outputs, std::move(checkpoints));
    GradientWalk walk({builder, builder, inner, scope, recomputation ? &*recomputation : nullptr});
    for (size_t i = 0; i < ys.size(); ++i) {
      MR_TRY_ASSIGN(Gradient gradient, incoming(builder, ys[i], i, grad_ys));
      walk.seed(y_outputs[i], gradient);
    }
    MR_TRY_ASSIGN(std::vector<Gradient> out, walk.run(x_outputs, stops));
    for (size_t i = 0; i < out.size() && options.zeros_for_unconnected; ++i) {
      if (!out[i].valid()) out[i].values = zero_gradient(xs[i]);
    }
    MR_TRY(builder.status());
    return out;
  }();
  builder.context() = std::move(before);
  return result;
}

Result<std::string> gradient_function(GraphBuilder& builder, const FunctionAttr& function) {
  Graph& graph = builder.graph();
  MR_TRY_ASSIGN(Ref<FunctionBody> body,
                graph.functions().instantiate(function.name, function.attrs, graph.registry()));
  FunctionBuilder inside(builder);
  std::vector<Expr> args;
  std::vector<Output> parameters;
  for (size_t i = 0; i < body->args.size(); ++i) {
    args.push_back(inside.add_parameter(str_cat("arg_", i), body->arg_types[i],
                                        body->graph->node(body->args[i]).facts(0)));
    parameters.push_back(GraphBuilder::output(args.back()));
  }
  MR_TRY(inside.status());
  MR_TRY_ASSIGN(std::vector<Expr> results, inline_body(inside, *body, args));
  std::vector<Gradient> incoming;
  std::vector<Expr> ys;
  for (size_t i = 0; i < results.size(); ++i) {
    TensorFacts facts = {.shape = results[i].shape()};
    Expr g = inside.add_parameter(str_cat("gradient_", i), body->result_types[i], facts);
    if (!g.valid()) return inside.status();
    parameters.push_back(GraphBuilder::output(g));
    if (!has_gradients(body->result_types[i])) continue;
    ys.push_back(results[i]);
    incoming.push_back({g, {}, {}});
  }
  std::vector<Expr> xs;
  for (Expr arg : args) {
    if (has_gradients(arg.dtype())) xs.push_back(arg);
  }
  MR_TRY_ASSIGN(std::vector<Gradient> found, gradients(inside, ys, xs, incoming));
  std::vector<Output> out;
  size_t next = 0;
  for (Expr arg : args) {
    Expr dense = has_gradients(arg.dtype()) ? to_dense(found[next++]) : Expr();
    if (!dense.valid()) dense = zeros_like(arg);
    if (!dense.valid()) return inside.status();
    out.push_back(GraphBuilder::output(dense));
  }
  if (!inside.captures().empty()) return internal("a gradient function captured a tensor");
  return inside.finish(str_cat(function.name, "_grad"), parameters, out);
}

}  // namespace millrace
