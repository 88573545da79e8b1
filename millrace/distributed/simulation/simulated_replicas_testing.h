#pragma once

#include <cstdint>

#include "millrace/distributed/simulation/simulation_drive_testing.h"

namespace millrace {

// Bugs put in on purpose, for tests of the simulation itself: each is what a chief or a worker
// would do that knew less of what had happened before.
struct ReplicaBugs {
  bool forgotten_step = false;  // a chief that tries a step again gives it no id
  bool nameless_era = false;    // workers do not know in which era they are
  bool early_update = false;    // servers do not wait for each other before they apply a step
  bool torn_save = false;       // a chief saves as soon as it has a session
};

// Synchronous replicas as SyncReplicasOptimizer has them, with the ops that it is made of: two
// workers give gradients of each step to accumulators on two parameter servers, and wait at a gate;
// the chief, which is one of them, takes both gradients of each server, applies them by an
// optimiser with slots, counts the step and opens the gate. A run that fails is tried again by its
// id, in another session, at once, as MonitoredSession does. The chief saves every second step; it
// sets the model back to what was saved when a parameter server was lost, and only then. However
// often connections and processes end:
//  - the model after each step is what it is when nothing goes wrong, bit for bit: each step is
//    applied exactly once on each server, with one gradient of each worker, computed with the model
//    of that step;
//  - so is what is saved;
//  - everybody is done in time, once things have calmed down;
//  - then, leases later, no task has a step, a graph or a session of anybody.
SimulationResult simulate_replicas(uint64_t seed, const ReplicaBugs& bugs = {},
                                   const SimulatedCluster::Bugs& cluster_bugs = {});

}  // namespace millrace
