#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/function.h"
#include "millrace/base/status.h"
#include "millrace/kernel/step.h"
#include "millrace/runtime/plan.h"

namespace millrace {

// Which way a plan runs. Results are the same.
enum class Gear : uint8_t {
  kAuto,  // straight where the plan allows it and is too small to be worth sharing among threads
  kStraight,  // in order on the caller's thread, where the plan allows it
  kParallel,  // every step as soon as its inputs are there, on the pool
};

// One run of one plan. What it points to lives until the run is over.
struct ExecuteArgs {
  StepContext step;  // `device` is set by the executor
  // One per feed of the signature; invalid where this plan does not use it.
  std::span<const Tensor> feeds;
  // One per fetch of the signature: this plan sets those that it owns.
  std::span<Tensor> fetches;
};

// True when `gear` means the straight gear for this plan.
bool runs_straight(const Plan& plan, Gear gear);

// Runs a plan that allows it in order, on this thread: no locks, no atomics, no queue. Stops
// between steps once the step is cancelled.
Status run_straight(Plan& plan, const ExecuteArgs& args);

// Runs any plan, beginning on this thread and sharing with the pool. `done` is called exactly once,
// when no kernel of the run is running any more, perhaps before this returns. The first error
// cancels the step (its token and its rendezvous, so that the other plans of the step end too) and
// is what `done` gets.
void run_parallel(Ref<Plan> plan, const ExecuteArgs& args, UniqueFunction<void(Status)> done);

// A run whose feeds come one by one and whose fetches are waited for one by one. Thread-safe.
class PartialRun : public RefCounted {
 public:
  // Starts the plans of one step. `args.feeds` is not used; `args.fetches` only tells how many
  // there are. `on_end` is called when nothing runs any more.
  static Ref<PartialRun> start(std::vector<Ref<Plan>> plans, const ExecuteArgs& args,
                               UniqueFunction<void(Status)> on_end);
  // Gives feed `position` its value: INVALID_ARGUMENT when it has one already.
  virtual Status feed(int position, Tensor value) = 0;
  // Waits for a fetch. The run's error when it failed, INVALID_ARGUMENT for a dead tensor,
  // DEADLINE_EXCEEDED.
  virtual Result<Tensor> fetch(int position, Deadline deadline) = 0;
};

// A kernel's error with what a user needs to find the place: op and node name before it, the origin
// and "[[{{node NAME}}]]" after it.
Status annotate_error(const Status& status, const KernelNode& node, OriginId origin);

}  // namespace millrace
