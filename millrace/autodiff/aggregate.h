#pragma once

#include <vector>

#include "millrace/graph/gradient.h"

namespace millrace {

// The sum of gradients of one tensor, invalid for none: rows stay rows when all are. Rows are
// joined, not sorted: an index may stand there more than once.
Gradient sum_gradients(const std::vector<Gradient>& gradients);

}  // namespace millrace
