#pragma once

#include "millrace/graph/gradient.h"

// What gradient rules of decompositions are written with.

namespace millrace {

// The products of the matrices in a and b (or in their adjoints).
Expr matrix_product(Expr a, Expr b, bool adj_a = false, bool adj_b = false);
// The last two dimensions exchanged, and conjugates.
Expr matrix_adjoint(Expr a);
// The columns [0, count) of matrices, and those from there on; `count` is an int32 scalar.
Expr first_columns(Expr a, Expr count);
Expr columns_from(Expr a, Expr count);
// Of matrices, the lower triangle and the diagonal.
Expr lower_triangle(Expr a);

}  // namespace millrace
