#pragma once

#include <cstdint>
#include <vector>

#include "millrace/runtime/plan.h"

namespace millrace {

// Finds the loops of a plan that can do without frames, and gives them the form of PlanLoop: steps
// in order, no counters, no iterations to make and to end. The plan's steps, edges and frames are
// there; frames stay as they are, for runs that need them.
//
// A loop has this form where
//  * it is built as loops are: variables that enter, are joined with what comes back by a Merge and
//    are sent on by a Switch on the one LoopCond; NextIterations come from the Switches' true
//    side, Exits from the false side, unconditionally;
//  * its kernels are ordinary ones: none waits, sends or receives, and none is asynchronous;
//  * the loops inside of it have the form too.
// Branches inside are jumps. What reads nothing but constants of the loop, and has no effects, is
// computed once.
//
// Results and errors are those of frames; where an op has effects, so is their order as far as it
// is promised. The loop begins when all of its inputs are there, so one that hangs on its own
// outputs has frames.
//
// Returns the order of the root's steps for the straight form: a loop is named by its LoopCond and
// has its place among them. Meaningful where Plan::straight_allowed().
std::vector<int32_t> add_loops(Plan& plan);

}  // namespace millrace
