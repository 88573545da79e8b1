#pragma once

#include <functional>
#include <vector>

#include "millrace/api/scope.h"
#include "millrace/graph/functional_builders.h"

namespace millrace {

// Branches and loops in C++ programs. The code of a branch or body gets a scope to build in; it may
// use any tensor of the scopes around it. What it makes runs only when the branch is taken or the
// iteration is reached. Nothing is unrolled: the graph does not grow with the number of iterations,
// and gradients go through.
//
//   Expr y = cond(root, ops::less(root, x, zero),
//                 [&](const Scope& s) { return ops::neg(s, x); },
//                 [&](const Scope& s) { return ops::sqrt(s, x); });
//
//   std::vector<Expr> out = while_loop(root, {i, x},
//       [&](const Scope& s, const std::vector<Expr>& v) { return ops::less(s, v[0], n); },
//       [&](const Scope& s, const std::vector<Expr>& v) {
//         return std::vector<Expr>{v[0] + 1, ops::tanh(s, v[1])};
//       });

using Branch = std::function<std::vector<Expr>(const Scope&)>;
using LoopCondition = std::function<Expr(const Scope&, const std::vector<Expr>&)>;
using LoopBody = std::function<std::vector<Expr>(const Scope&, const std::vector<Expr>&)>;

// The results of one of the branches, which give as many results of the same types.
std::vector<Expr> cond(const Scope& scope, Expr predicate, const Branch& then_branch,
                       const Branch& else_branch, SourceLocation where = SourceLocation::current());
// With one result.
Expr cond(const Scope& scope, Expr predicate, const std::function<Expr(const Scope&)>& then_branch,
          const std::function<Expr(const Scope&)>& else_branch,
          SourceLocation where = SourceLocation::current());
// The results of branch number `index` (int32); of the last one for an index out of range.
std::vector<Expr> switch_case(const Scope& scope, Expr index, const std::vector<Branch>& branches,
                              SourceLocation where = SourceLocation::current());

struct LoopOptions {
  // How many iterations may run at once.
  int64_t parallel_iterations = 10;
  // What is true of the variables' shapes in every iteration; empty: they keep the shapes they come
  // in with.
  std::vector<PartialShape> shape_invariants = {};
  // The loop ends after this many iterations in any case; negative: no limit.
  int64_t maximum_iterations = -1;
};
// What the variables have become when `condition` does not hold any more. A body that changes the
// type or the shape of a variable is INVALID_ARGUMENT.
std::vector<Expr> while_loop(const Scope& scope, const std::vector<Expr>& initial,
                             const LoopCondition& condition, const LoopBody& body,
                             const LoopOptions& options = {},
                             SourceLocation where = SourceLocation::current());

// The loops below go over dimension 0 of `elements`, all of one length. In their bodies the first
// values are those carried along, then come the elements of this step.

// Stacks what `f` makes of each element; `f` gives as many results in every step.
std::vector<Expr> map_fn(const Scope& scope, const std::vector<Expr>& elements, const LoopBody& f,
                         const LoopOptions& options = {},
                         SourceLocation where = SourceLocation::current());
// What `f` has made of `initial` after the last element.
std::vector<Expr> foldl(const Scope& scope, const std::vector<Expr>& elements,
                        const std::vector<Expr>& initial, const LoopBody& f,
                        const LoopOptions& options = {},
                        SourceLocation where = SourceLocation::current());
std::vector<Expr> foldr(const Scope& scope, const std::vector<Expr>& elements,
                        const std::vector<Expr>& initial, const LoopBody& f,
                        const LoopOptions& options = {},
                        SourceLocation where = SourceLocation::current());
// As foldl, but stacks what `f` made at each element.
std::vector<Expr> scan(const Scope& scope, const std::vector<Expr>& elements,
                       const std::vector<Expr>& initial, const LoopBody& f,
                       const LoopOptions& options = {},
                       SourceLocation where = SourceLocation::current());

}  // namespace millrace
