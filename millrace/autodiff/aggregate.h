#pragma once

#include <span>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/graph_builder.h"

namespace millrace {

// The sum of gradients of one tensor, invalid for none: rows stay rows when all are. Rows are
// joined, not sorted: an index may stand there more than once.
Gradient sum_gradients(const std::vector<Gradient>& gradients);

// Makes each of the tensors that are valid wait for all of them: who changes a variable by one
// disturbs nobody who computes another.
Status gate(GraphBuilder& builder, std::span<Expr> tensors);

// Zeros in the type and shape of the gradient of x, a tensor of a graph: those of the value where x
// is the handle of a variable.
Expr zero_gradient(Expr x);
// The shape of the gradient of x, int64.
Expr gradient_shape(Expr x);
// What is known of it.
PartialShape known_gradient_shape(Expr x);

}  // namespace millrace
