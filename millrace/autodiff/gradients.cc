#include "millrace/autodiff/gradients.h"

#include <memory>
#include <optional>

#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/gradient_walk.h"
#include "millrace/autodiff/inline_body.h"
#include "millrace/autodiff/recompute.h"
#include "millrace/graph/function_builder.h"

namespace millrace {
namespace {

// One of the graphs that gradients flow through: that of the builder they are made by, or one
// around it.
struct Level {
  GraphBuilder* builder;
  std::vector<Output> xs, stops, checkpoints;
  std::vector<size_t> x_numbers;  // of `xs`, among all
  // What this graph's tensors are called in the one inside, where they depend on an x here.
  std::vector<FunctionBuilder::Capture> captures;
};

// The builder, then those of the graphs around it.
std::vector<Level> levels_around(GraphBuilder& builder) {
  std::vector<Level> levels = {{.builder = &builder}};
  while (auto* function = dynamic_cast<FunctionBuilder*>(levels.back().builder)) {
    levels.push_back({.builder = &function->outer()});
  }
  return levels;
}

// The level that tensor `i` of `what` is of.
Result<Level*> level_of(std::vector<Level>& levels, Expr tensor, std::string_view what, size_t i) {
  for (Level& level : levels) {
    if (tensor.builder() == level.builder) return &level;
  }
  return invalid_argument(what, " ", i, tensor.valid() ? " is of another graph" : " is no tensor");
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

// One computation of gradients. What a function's body uses of the graphs around it came in as
// captures; from these the gradients flow on there, still computed in the body, which captures the
// values that the rules use. Nothing of the graphs around is computed a second time.
class Flow {
 public:
  Flow(GraphBuilder& builder, const GradientOptions& options, std::string source)
      : builder_(builder), options_(options), source_(std::move(source)) {}

  Status read(std::span<const Expr> ys, std::span<const Expr> xs,
              std::span<const Gradient> grad_ys) {
    levels_ = levels_around(builder_);
    for (size_t i = 0; i < ys.size(); ++i) {
      MR_TRY(level_of(levels_, ys[i], "y", i).status());
      const Expr y = builder_.import(ys[i]);
      MR_TRY(builder_.status());
      ys_.push_back(GraphBuilder::output(y));
      MR_TRY_ASSIGN(Gradient gradient, incoming(builder_, y, i, grad_ys));
      seeds_.push_back(gradient);
    }
    for (size_t i = 0; i < xs.size(); ++i) {
      MR_TRY_ASSIGN(Level * level, level_of(levels_, xs[i], "x", i));
      level->xs.push_back(GraphBuilder::output(xs[i]));
      level->x_numbers.push_back(i);
    }
    for (size_t i = 0; i < options_.stop_gradients.size(); ++i) {
      const Expr stop = options_.stop_gradients[i];
      MR_TRY_ASSIGN(Level * level, level_of(levels_, stop, "stop gradient", i));
      level->stops.push_back(GraphBuilder::output(stop));
    }
    for (size_t i = 0; i < options_.checkpoints.size(); ++i) {
      const Expr kept = options_.checkpoints[i];
      MR_TRY_ASSIGN(Level * level, level_of(levels_, kept, "checkpoint", i));
      level->checkpoints.push_back(GraphBuilder::output(kept));
    }
    while (levels_.size() > 1 && levels_.back().xs.empty()) levels_.pop_back();
    num_xs_ = xs.size();
    return ok_status();
  }

  Result<std::vector<Gradient>> run() {
    inner_ = options_;
    choose_recomputation();
    aim();
    for (size_t i = 0; i < ys_.size(); ++i) walks_[0]->seed(ys_[i], seeds_[i]);
    std::vector<Gradient> out(num_xs_);
    for (size_t k = 0; k < levels_.size(); ++k) {
      MR_TRY_ASSIGN(std::vector<Gradient> found, walks_[k]->run());
      const Level& level = levels_[k];
      for (size_t i = 0; i < level.x_numbers.size(); ++i) out[level.x_numbers[i]] = found[i];
      if (k + 1 == levels_.size()) break;
      const Level& around = levels_[k + 1];
      for (size_t i = 0; i < around.captures.size(); ++i) {
        const Gradient& gradient = found[level.x_numbers.size() + i];
        if (!gradient.valid()) continue;
        walks_[k + 1]->seed(GraphBuilder::output(around.captures[i].outer), gradient);
      }
    }
    return out;
  }

 private:
  // What is computed again is chosen among the operations of the builder's own graph.
  void choose_recomputation() {
    TensorSet kept;
    for (Output o : levels_[0].checkpoints) kept.insert({o.node, o.index});
    if (options_.checkpoints.empty() && (options_.recompute || options_.memory_budget > 0)) {
      kept = choose_checkpoints(builder_.graph(), ys_, levels_[0].xs, options_.memory_budget);
    }
    inner_.recompute = !kept.empty() || options_.recompute;
    if (!kept.empty()) recomputation_.emplace(builder_, ys_, std::move(kept));
  }

  // Makes the walks, the outermost first: it says which captures lead to an x.
  void aim() {
    walks_.resize(levels_.size());
    for (size_t k = levels_.size(); k-- > 0;) {
      Level& level = levels_[k];
      std::vector<Output> ys = ys_;
      std::vector<FunctionBuilder::Capture> used;
      if (k > 0) {
        ys.clear();
        used = static_cast<FunctionBuilder*>(levels_[k - 1].builder)->captures();
        for (const FunctionBuilder::Capture& c : used) ys.push_back(GraphBuilder::output(c.outer));
      }
      std::vector<Output> ends = level.xs;
      if (k + 1 < levels_.size()) {
        for (const FunctionBuilder::Capture& capture : levels_[k + 1].captures) {
          ends.push_back(GraphBuilder::output(capture.inner));
        }
      }
      Recomputation* again = k == 0 && recomputation_ ? &*recomputation_ : nullptr;
      walks_[k] = std::make_unique<GradientWalk>(
          WalkContext{*level.builder, builder_, inner_, source_, again}, ys, ends, level.stops);
      for (const FunctionBuilder::Capture& capture : used) {
        if (walks_[k]->flows(GraphBuilder::output(capture.outer)))
          level.captures.push_back(capture);
      }
    }
  }

  GraphBuilder& builder_;
  const GradientOptions& options_;
  const std::string source_;
  GradientOptions inner_;
  std::vector<Level> levels_;
  std::vector<Output> ys_;
  std::vector<Gradient> seeds_;
  size_t num_xs_ = 0;
  std::optional<Recomputation> recomputation_;
  std::vector<std::unique_ptr<GradientWalk>> walks_;  // by level
};

}  // namespace

Result<std::vector<Gradient>> gradients(GraphBuilder& builder, std::span<const Expr> ys,
                                        std::span<const Expr> xs, std::span<const Gradient> grad_ys,
                                        const GradientOptions& options) {
  MR_TRY(builder.status());
  if (!grad_ys.empty() && grad_ys.size() != ys.size()) {
    return invalid_argument("expected a gradient for each of ", ys.size(), " ys, got ",
                            grad_ys.size());
  }
  GraphBuilder::Context before = builder.context();
  std::string scope = builder.graph().unique_name(str_cat(before.scope, options.name));
  builder.context().scope = str_cat(scope, "/");
  Result<std::vector<Gradient>> result = [&]() -> Result<std::vector<Gradient>> {
    Flow flow(builder, options, scope);
    MR_TRY(flow.read(ys, xs, grad_ys));
    MR_TRY_ASSIGN(std::vector<Gradient> out, flow.run());
    for (size_t i = 0; i < out.size() && options.zeros_for_unconnected; ++i) {
      if (!out[i].valid()) out[i].values = zero_gradient(builder.import(xs[i]));
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
