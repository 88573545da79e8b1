#pragma once

#include "millrace/base/status.h"

namespace millrace {

class GradientContext;

// The gradient rules of the reductions (inputs: tensor, axes; attribute keep_dims).
Status sum_gradient(GradientContext& g);
Status mean_gradient(GradientContext& g);
// An extremum that several elements share is shared equally between them.
Status max_or_min_gradient(GradientContext& g);
// Each element gets the product of all others, computed without dividing: right where elements are
// zero, too.
Status prod_gradient(GradientContext& g);

}  // namespace millrace
