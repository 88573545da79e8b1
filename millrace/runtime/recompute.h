#pragma once

#include <cstdint>

#include "millrace/runtime/memory_estimate.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// What recompute() did. Bytes are those of memory_estimate.h.
struct Recomputed {
  int64_t peak_before = 0;
  int64_t peak_after = 0;
  int nodes = 0;  // that run twice
};

// Has a graph that is thought to hold more than `budget` bytes at once hold less: values that are
// kept for after the peak, as the backward pass reads what the forward pass made, are dropped and
// made again shortly before they are read. Which ones is chosen by cost: what is cheap for its size
// first; where that is not enough, all but some from which the others follow. Results are the same
// to the bit, for a node that has state, reads a reference or is inside a loop never runs twice,
// and what reads a variable that is a reference runs again before that is changed.
//
// Comes as near to the budget as it can. Goes from one graph that means the same to another; does
// nothing where sizes are not known.
Result<Recomputed> recompute(Subgraph& graph, int64_t budget);

}  // namespace millrace
