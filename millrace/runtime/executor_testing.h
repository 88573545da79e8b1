#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/graph/graph_builder.h"
#include "millrace/runtime/executor.h"

// Runs small graphs through compile() and the executor, for tests: no session, no passes.

namespace millrace {

// Builds a graph by hand: Expr arithmetic, branches and loops as primitives.
class TestGraph {
 public:
  // Registers the control, array and math ops in the process's registries.
  TestGraph();

  GraphBuilder& builder() { return *builder_; }
  Graph& graph() { return *graph_; }
  Expr feed(DType dtype, int position);
  void fetch(Expr value, int position);
  Expr constant(int32_t v) { return builder_->constant(Tensor::scalar<int32_t>(v)); }
  Expr constant(bool v) { return builder_->constant(Tensor::scalar<bool>(v)); }
  Expr enter(Expr value, std::string frame, bool constant = false, int parallel = 10);
  // `while (cond(vars)) vars = body(vars)`. `invariants` are made constant in the frame and given
  // to both.
  using Values = std::vector<Expr>;
  Values while_loop(const std::string& frame, Values initial, Values invariants,
                    FunctionRef<Expr(Values vars, Values invariants)> cond,
                    FunctionRef<Values(Values vars, Values invariants)> body, int parallel = 10);
  // `pred ? then(x) : otherwise(x)`.
  Expr cond(Expr pred, Expr x, FunctionRef<Expr(Expr)> then, FunctionRef<Expr(Expr)> otherwise);

  Result<Ref<Plan>> plan(const CompileOptions& options = {});

 private:
  Ref<Graph> graph_;
  std::unique_ptr<GraphBuilder> builder_;
};

// Runs a plan once. `fetches` is how many there are.
Result<std::vector<Tensor>> run_plan(const Ref<Plan>& plan, std::vector<Tensor> feeds, int fetches,
                                     Gear gear = Gear::kParallel);

}  // namespace millrace
