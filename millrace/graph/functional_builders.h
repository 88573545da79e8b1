#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/graph/function_builder.h"

namespace millrace {

// Branches and loops from code that builds their parts. The parts may use tensors of the graphs
// around them: these become inputs of the node. An error is the caller's builder's status, too.

// Builds the results of a function from its parameters.
using BuildFunction =
    FunctionRef<std::vector<Expr>(FunctionBuilder& inside, const std::vector<Expr>& parameters)>;

// The outputs of an If: those of `then_branch` where `predicate` holds, else of `else_branch`,
// neither of which takes parameters. Both give as many results of the same types; shapes that
// differ become unknown. INVALID_ARGUMENT otherwise, with both.
std::vector<Expr> add_if(GraphBuilder& builder, Expr predicate, BuildFunction then_branch,
                         BuildFunction else_branch, std::string_view name = "cond");
// The outputs of a Case: those of branch number `index`, of the last one for an index out of range.
std::vector<Expr> add_case(GraphBuilder& builder, Expr index,
                           std::span<const BuildFunction> branches, std::string_view name = "case");

// The shape of a tensor list's elements as the list ops take it.
Expr element_shape(OpBuilder& builder, const PartialShape& shape);

// How many of a functional node's outputs, the last ones, are there only because a gradient wants
// values saved: what waits for the node does not wait for them. 0 where nobody said.
Result<int64_t> saved_outputs(const AttrMap& attrs);
Status add_saved_outputs(AttrMap& attrs, int64_t more);

struct WhileOptions {
  std::string name = "while";
  int64_t parallel_iterations = 10;
  // What is true of the variables' shapes in every iteration; empty: they keep the shapes they come
  // in with.
  std::vector<PartialShape> shape_invariants = {};
  // The shapes are known to hold although the body's inference may not see it.
  bool trust_shapes = false;
};
// The outputs of a While over variables that begin as `initial`: `condition` (one bool result) and
// `body` take the variables. A body that gives another number of variables, another type, or a
// shape that the invariant does not cover is INVALID_ARGUMENT with both.
std::vector<Expr> add_while(GraphBuilder& builder, std::span<const Expr> initial,
                            BuildFunction condition, BuildFunction body,
                            const WhileOptions& options = {});

}  // namespace millrace
