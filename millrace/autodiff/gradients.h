#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/graph_builder.h"

namespace millrace {

struct GradientOptions {
  // Taken as constants: nothing flows through them. One of them may be an x.
  std::vector<Expr> stop_gradients = {};
  // Zeros for an x that no y depends on, instead of none.
  bool zeros_for_unconnected = false;
  // Every operation goes to the device of the operation whose gradient it computes.
  bool colocate = false;
  // The gradients of one operation's inputs are all there before any of them is used: who updates
  // a variable in place by its gradient does not disturb another gradient that reads it.
  bool gate_operations = false;
  // What gradients use of the forward pass is held until they have used it. Three ways to hold
  // less, at the price of computing some of it twice (gradient checkpointing):
  //
  // Loops and branches keep their inputs only, and compute again what the gradient needs of their
  // inside; outside of them, tensors are chosen to be kept, about the square root of all.
  bool recompute = false;
  // As recompute, but outside of loops and branches these tensors are kept.
  std::vector<Expr> checkpoints = {};
  // As recompute, but only when the tensors that the gradient may use have more bytes than this (as
  // far as shapes are known), and keeping what fits. 0: no limit.
  int64_t memory_budget = 0;
  // What loops save for their gradients waits in host memory. Where the loop runs on a device with
  // memory of its own, that is freed meanwhile; elsewhere nothing is gained.
  bool swap_memory = false;
  // Operations are named below this.
  std::string name = "gradients";
};

// The gradients of the sum of `ys` with respect to each of `xs`: adds operations to the builder's
// graph, one rule per op on the way, and returns a gradient per x, invalid where no y depends on
// it. `grad_ys`: the gradients that come in for each y, empty or with invalid ones for ones.
//
// ys and xs are tensors of the builder's graph or, in the body of a function, of a graph around it;
// an x may be anywhere on the way. Where values of a loop or branch are needed, its node is widened
// (Graph::widen).
//
// NOT_FOUND for an op on the way that has no rule, with the path; INVALID_ARGUMENT for a y that has
// no gradients by its type; a rule's own errors. All name the node and where it was made.
Result<std::vector<Gradient>> gradients(GraphBuilder& builder, std::span<const Expr> ys,
                                        std::span<const Expr> xs,
                                        std::span<const Gradient> grad_ys = {},
                                        const GradientOptions& options = {});

// The function that computes the gradients of function `name` of the builder's graph: its arguments
// are those of the function and a gradient per result, its results a gradient per argument (zeros
// where there is none). Added to the library; returns its name.
Result<std::string> gradient_function(GraphBuilder& builder, const FunctionAttr& function);

}  // namespace millrace
