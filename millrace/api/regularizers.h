#pragma once

#include <functional>
#include <vector>

#include "millrace/api/variables.h"

namespace millrace {

// A penalty on weights, to be added to a loss; a scalar of their type.
using Regularizer = std::function<Expr(const Scope& scope, Expr weights)>;

namespace regularizers {

Regularizer l1(double scale);  // scale * sum(|w|)
Regularizer l2(double scale);  // scale * sum(w^2) / 2
Regularizer l1_l2(double l1_scale, double l2_scale);

}  // namespace regularizers

// The sum of the penalties on the variables, which must be of one type and at least one.
Expr regularization_loss(const Scope& scope, const Regularizer& regularizer,
                         const std::vector<Variable*>& variables,
                         SourceLocation where = SourceLocation::current());

}  // namespace millrace
