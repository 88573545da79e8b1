#pragma once

#include "millrace/base/status.h"

namespace millrace {

class Expr;
class GradientContext;

// The gradient rules of the reductions (inputs: tensor, axes; attribute keep_dims).
Status sum_gradient(GradientContext& g);
Status mean_gradient(GradientContext& g);
// An extremum that several elements share is shared equally between them.
Status max_or_min_gradient(GradientContext& g);
// Each element gets the product of all others, computed without dividing: right where elements are
// zero, too.
Status prod_gradient(GradientContext& g);

// x in a type that numbers of elements fit in: float for half, which ends at 65,504, and bfloat16,
// which has 8 bits; x itself otherwise.
Expr widened(Expr x);

}  // namespace millrace
