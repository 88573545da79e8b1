#pragma once

#include <vector>

#include "millrace/api/optimizer.h"

namespace millrace {

// Keeps values, often gradients, from getting too large. Gradients that are rows stay rows, and
// none stays none.
//
//   std::vector<VariableGradient> found = adam.compute_gradients(root, loss);
//   Operation train = adam.apply_gradients(root, clip_by_global_norm(root, found, 5.0));

// Each element moved into [low, high].
Expr clip_by_value(const Scope& scope, Expr x, double low, double high,
                   SourceLocation where = SourceLocation::current());
Gradient clip_by_value(const Scope& scope, const Gradient& gradient, double low, double high,
                       SourceLocation where = SourceLocation::current());

// x scaled down to a Euclidean norm of at most `norm`, which must be positive.
Expr clip_by_norm(const Scope& scope, Expr x, double norm,
                  SourceLocation where = SourceLocation::current());
// Rows that come several times count each by itself.
Gradient clip_by_norm(const Scope& scope, const Gradient& gradient, double norm,
                      SourceLocation where = SourceLocation::current());

// The Euclidean norm of all gradients together; a scalar. Rows that come several times count each
// by itself. INVALID_ARGUMENT when there is none.
Expr global_norm(const Scope& scope, const std::vector<VariableGradient>& gradients,
                 SourceLocation where = SourceLocation::current());

// All gradients scaled by one factor, so that their global norm is at most `norm`, which must be
// positive. When it is not finite they become NaN: nothing good could come of them.
std::vector<VariableGradient> clip_by_global_norm(const Scope& scope,
                                                  const std::vector<VariableGradient>& gradients,
                                                  double norm,
                                                  SourceLocation where = SourceLocation::current());

}  // namespace millrace
