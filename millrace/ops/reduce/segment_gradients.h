#pragma once

#include "millrace/base/status.h"
#include "millrace/graph/expr.h"

namespace millrace {

class GradientContext;

// `x` with as many dimensions of size 1 behind its own as make it of the rank of `like`.
Expr with_trailing_ones(Expr x, Expr like);
// The row of `y` for each id; zeros for negative ids, whose rows belong to no segment.
Expr gather_segments(Expr y, Expr ids);

// The gradient rules of SegmentX and UnsortedSegmentX (inputs: data, ids, perhaps the number of
// segments).

// An extremum that several rows share is shared equally between them.
Status segment_extremum_gradient(GradientContext& g);
Status unsorted_segment_extremum_gradient(GradientContext& g);
// Each element gets the product of the others, computed without dividing.
Status segment_prod_gradient(GradientContext& g);
Status unsorted_segment_prod_gradient(GradientContext& g);

}  // namespace millrace
