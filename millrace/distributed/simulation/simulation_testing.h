#pragma once

#include <cstdint>

#include "millrace/distributed/simulation/simulation_drive_testing.h"

// Whole runs of a simulated cluster, each from a seed, with what must hold whatever goes wrong.

namespace millrace {

// Asynchronous training: both workers update both parameter servers, each update in a place of its
// own, until each has had some acknowledged. However often connections and processes end:
//  - no update is there twice;
//  - an update that was acknowledged is there, where the parameter server has lived since;
//  - everybody is done in time, once things have calmed down;
//  - then, leases later, no task has a step, a graph or a session of anybody.
SimulationResult simulate_updates(uint64_t seed, const SimulatedCluster::Bugs& bugs,
                                  const SimulatedCluster::Chances& chances);

// The same where an update whose run fails is tried again, as MonitoredSession does: by its id, in
// another session at once, while the first may go on. Each update is acknowledged at last, unless
// its worker ends; the points above hold.
SimulationResult simulate_tries(uint64_t seed, const SimulatedCluster::Bugs& bugs,
                                const SimulatedCluster::Chances& chances);

// Synchronous training: one client on worker 0 runs steps that all tasks take part in, saves every
// third, and after an error goes on from what it saved. What each step gives is what it gives when
// nothing goes wrong. The last two points above hold too.
SimulationResult simulate_synchronous(uint64_t seed, const SimulatedCluster::Bugs& bugs,
                                      const SimulatedCluster::Chances& chances);

// One of these. `chances` null: by the seed, nothing, each kind of trouble alone, or all.
SimulationResult simulate(uint64_t seed, const SimulatedCluster::Bugs& bugs = {},
                          const SimulatedCluster::Chances* chances = nullptr);

}  // namespace millrace
