#pragma once

#include "millrace/graph/expr.h"

namespace millrace {

// Along `axis`, from the first element on or, with `reverse`, from the last:
//
//   y_i = a_i y_{i-1} + b_i, or y_i = a_{i-1} y_{i-1} + b_i with `shifted`; y_{-1} = 0.
//
// The derivative of a running product without division, and its own derivative.
Expr linear_recurrence(Expr a, Expr b, Expr axis, bool reverse, bool shifted);

// For each element the one before it in the same order; zero for the first.
Expr previous_element(Expr x, Expr axis, bool reverse);

}  // namespace millrace
