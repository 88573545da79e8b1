#pragma once

#include "millrace/distributed/simulation/simulation_testing.h"

namespace millrace {

// Data-parallel training by collective operations: a member on every task. A member whose process
// was started again, or that has seen the group fail, first takes the state of the one that is
// furthest. Then each makes steps with the others until all have made enough. However often
// connections and processes end:
//  - what a sum, a gathering or a broadcast gives is right on every member that gets it;
//  - so is the state after every step: what it is when nothing goes wrong;
//  - everybody is done in time, once things have calmed down: nobody waits for ever, and groups
//    form anew;
//  - then no task waits for anything.
SimulationResult simulate_members(uint64_t seed, const SimulatedCluster::Bugs& bugs = {});

}  // namespace millrace
