#pragma once

#include "millrace/distributed/step_rendezvous.h"
#include "millrace/runtime/boundary.h"
#include "millrace/runtime/plan_set.h"

namespace millrace {

// Runs a task's part of a partial run: feeds come to, and fetches go from, the step's rendezvous,
// under the keys of partial_keys.h. A feed that is no tensor of the right type is the step's error.
// `done` as in Executable::run_async(); feeds that never come are waited for until the step fails.
void run_in_pieces(const PlanSet& plans, const Boundary& boundary,
                   const Ref<StepRendezvous>& rendezvous, const Ref<Step>& step, Step::Done done);

}  // namespace millrace
