#pragma once

#include "millrace/base/status.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// Makes a graph say where numbers that are not finite began, for people who look for a NaN.
//
// Beside every tensor of real or complex numbers runs its origin: a vector of strings, empty while
// all numbers are finite, else with an account of the node that first made one of them NaN or Inf
// out of numbers that were. A node whose output is finite again (the branch of a Where that was not
// chosen) ends the trail. Control flow carries origins as it carries the tensors, so they come out
// of branches and loops.
//
// Before a tensor is fetched or reaches a node with effects (a variable's update, a queue) a guard
// looks at its origin, and ends the run with INVALID_ARGUMENT, the account in its message. In
// graphs without branches and loops no guarded node runs before all tensors that need none of them
// are found finite: a training step that fails leaves every variable as it was.
//
// Works on a graph that is placed and not yet optimised. Costs about one more pass over every
// tensor.
Status add_numerics_checks(Subgraph& graph);

}  // namespace millrace
