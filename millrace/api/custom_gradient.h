#pragma once

#include <functional>
#include <vector>

#include "millrace/api/scope.h"

namespace millrace {

// What a custom gradient is computed from.
struct CustomGradientArgs {
  std::vector<Expr> inputs;     // of the function
  std::vector<Expr> results;    // of the function
  std::vector<Expr> gradients;  // one per result; zeros where nothing depends on it
};
// A gradient per input, invalid for an input that has none. Built anew wherever gradients() comes
// by; made of differentiable operations, it can itself be differentiated.
using CustomGradient = std::function<std::vector<Expr>(const Scope&, const CustomGradientArgs&)>;

// The results of `function` on `inputs`, with `gradient` in place of the gradient that would follow
// from its operations: for a better conditioned one, or where there is none.
//
//   Expr y = custom_gradient(
//       root, {x}, [](const Scope& s, const auto& in) { return std::vector{ops::log1p(s,
//       ops::exp(s, in[0]))}; },
//       [](const Scope& s, const CustomGradientArgs& g) {
//         return std::vector{g.gradients[0] * ops::sigmoid(s, g.inputs[0])};
//       })[0];
//
// Tensors that `function` uses without naming them among `inputs` get no gradient.
std::vector<Expr> custom_gradient(
    const Scope& scope, const std::vector<Expr>& inputs,
    const std::function<std::vector<Expr>(const Scope&, const std::vector<Expr>&)>& function,
    CustomGradient gradient, SourceLocation where = SourceLocation::current());

}  // namespace millrace
