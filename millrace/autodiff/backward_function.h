#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/autodiff/gradient_walk.h"
#include "millrace/graph/function_builder.h"

namespace millrace {

// Makes the operations of a backward function. What it uses of the forward graph becomes captures,
// which are the values to save: so shapes are taken in the forward graph, where they are small, and
// constants are copied.
class BackwardBuilder : public FunctionBuilder {
 public:
  explicit BackwardBuilder(GraphBuilder& forward) : FunctionBuilder(forward) {}
  std::vector<Expr> emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) override;

 private:
  // The forward tensor that `e` is the capture of; invalid when it is none.
  Expr captured_from(Expr e) const;
};

// A function that is differentiated, and the operations of its gradient.
class BackwardFunction {
 public:
  // Of `function`, called from `context.forward` with arguments of which `facts` are known (empty:
  // nothing).
  static Result<std::unique_ptr<BackwardFunction>> create(const WalkContext& context,
                                                          const FunctionAttr& function,
                                                          std::span<const TensorFacts> facts);

  // Computes the gradients of the arguments that are `wanted` from those of the results that are
  // `given`: these become parameters, see gradient_parameters().
  Status differentiate(const std::vector<bool>& given, const std::vector<bool>& wanted);

  // The forward function, which may be added to.
  FunctionBody& body() { return *body_; }
  GraphBuilder& forward() { return forward_; }
  FunctionBuilder& backward() { return *backward_; }
  Output result(size_t i) const { return body_->graph->node(body_->results[i]).input(0); }
  // Which argument of the forward function `o` is; -1: none.
  int argument_number(Output o) const;

  // By result of the forward function; invalid where none was given.
  const std::vector<Expr>& gradient_parameters() const { return gradient_parameters_; }
  // By argument; invalid where there is none.
  std::vector<Gradient>& argument_gradients() { return argument_gradients_; }
  // As one tensor, zeros where there is none.
  Expr dense_argument_gradient(size_t i);

  // A value of the forward function that the gradients `results` need.
  struct Saved {
    Output forward;
    Output backward;  // the parameter that brings it
  };
  std::vector<Saved> saved(std::span<const Output> results) const;

  // The forward function with parameters, results and effects as now, and `more_arguments` and
  // `more_results` behind them. Returns its name.
  Result<std::string> finish_forward(std::string_view name, std::span<const Output> more_arguments,
                                     std::span<const Output> more_results);

 private:
  BackwardFunction(const WalkContext& context, Ref<FunctionBody> body);
  // Has the backward function run the forward one again, from its arguments and what was drawn in
  // it. `xs` and `ys`, tensors of the forward function, become those of the second run.
  Status run_again(std::vector<Output>& xs, std::vector<Output>& ys);

  const WalkContext& context_;
  GradientOptions options_;  // inside of the function
  Ref<FunctionBody> body_;
  GraphBuilder forward_;
  std::unique_ptr<FunctionBuilder> backward_;
  std::vector<Expr> gradient_parameters_;
  std::vector<Gradient> argument_gradients_;
};

}  // namespace millrace
