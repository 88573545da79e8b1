#pragma once

#include <cstdint>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/status.h"
#include "millrace/kernel/step.h"
#include "millrace/runtime/plan.h"

namespace millrace {

// Which way a plan runs. Results are the same.
enum class Gear : uint8_t {
  // Straight where the plan allows it and is too small to be worth sharing among threads, or where
  // runs take no longer so.
  kAuto,
  kStraight,  // in order on the caller's thread, where the plan allows it
  kParallel,  // every step as soon as its inputs are there, on the pool
};

// True when `gear` means the straight gear for this plan.
bool runs_straight(const Plan& plan, Gear gear);

// Runs a plan that allows it in order, on this thread: no locks, no atomics, no queue. The step is
// the plan's alone and was not begun; its error is returned. Ends between two kernels once the step
// is cancelled, interrupted or past its deadline.
Status run_straight(Plan& plan, Step& step);

// Runs any plan as one part of a step that was begun, starting on this thread and sharing with the
// pool. Ends the part when no kernel of the plan is running any more, perhaps before this returns.
// The first error is the step's, and ends its other parts too.
void run_parallel(Ref<Plan> plan, Ref<Step> step);

// A run whose feeds come one by one and whose fetches are waited for one by one. Thread-safe.
class PartialRun : public RefCounted {
 public:
  // Takes fetches as they come; an invalid tensor for a dead one.
  using OnFetch = UniqueFunction<void(int position, Tensor value)>;

  // Begins the step and starts the plans, which are its parts. The feeds of the step are not used,
  // and its fetches only tell how many there are. With `on_fetch` fetches are given to it, from any
  // thread and before the step ends, and fetch() is not to be called.
  static Ref<PartialRun> start(const std::vector<Ref<Plan>>& plans, Ref<Step> step, Step::Done done,
                               OnFetch on_fetch = nullptr);
  // Gives feed `position` its value: INVALID_ARGUMENT when it has one already.
  virtual Status feed(int position, Tensor value) = 0;
  // Waits for a fetch. The run's error when it failed, INVALID_ARGUMENT for a dead tensor,
  // DEADLINE_EXCEEDED.
  virtual Result<Tensor> fetch(int position, Deadline deadline) = 0;
};

}  // namespace millrace
