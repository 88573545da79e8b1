#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/loop_threads.h"
#include "millrace/kernel/kernel_call.h"
#include "millrace/kernel/trace.h"
#include "millrace/runtime/plan.h"

// What both gears of the executor do besides calling kernels.

namespace millrace {

// The value of a fetch: the variable's own storage is copied, so that later updates do not show.
Result<Tensor> fetch_value(Value& input, bool movable);

// Which output of a Switch with `count` outputs `predicate` means; INVALID_ARGUMENT for a value
// that is no predicate.
Result<int> switch_output(const Value& predicate, int count);

// Gives a value on: out of `from` where it is `movable`. A reference is read where `by_value`.
inline Status hand_on(Value& from, bool by_value, bool movable, Value& to) {
  if (from.is_ref() && by_value) return read_reference(from, to);
  if (movable) {
    to = std::move(from);
    from.clear();  // NOLINT(bugprone-use-after-move): its state says what to drop
  } else {
    to = from;
  }
  return ok_status();
}

// The error of a Merge to which two values came.
Status two_live_inputs();

// An error of step `step` with what a user needs to find the place. Of a step that only carries a
// value away, to the caller or to another device, that is the node that gave the value.
Status annotate_step(const Plan& plan, size_t step, const Status& status);

// Measures one execution of a step: for the plan's own statistics when the run was chosen to be
// measured, and for the step's trace when there is one. Costs nothing otherwise.
class StepTimer {
 public:
  // For the trace, `inputs`: what the step is about to read.
  StepTimer(Plan& plan, int32_t step, bool measured, TraceCollector* trace,
            std::span<Value* const> inputs = {}, int64_t scheduled_ns = 0)
      : plan_(plan), trace_(trace), scheduled_ns_(scheduled_ns), step_(step), measured_(measured) {
    if (trace_ != nullptr) [[unlikely]]
      note_read(inputs);
    if (measured_ || trace_ != nullptr) start_ns_ = monotonic_nanos();
  }
  // For the trace, `outputs`: what the step made, or null.
  void stop(const Value* outputs) {
    if (measured_ || trace_ != nullptr) [[unlikely]]
      record(outputs);
  }

 private:
  void note_read(std::span<Value* const> inputs);
  void record(const Value* outputs);

  Plan& plan_;
  TraceCollector* trace_;
  int64_t scheduled_ns_;
  int64_t start_ns_ = 0;
  std::vector<TraceEvent::Block> blocks_;
  int32_t step_;
  bool measured_;
};

// Measures a run of a plan of which is to be known which gear is quicker.
class RunTimer {
 public:
  explicit RunTimer(const Plan& plan) {
    if (plan.worth_sharing.load(std::memory_order_relaxed)) start_ns_ = monotonic_nanos();
  }
  // At the end of a run without errors: `known` is of its gear.
  void stop(std::atomic<uint32_t>& known) const {
    if (start_ns_ == 0) [[likely]]
      return;
    known.store(known_nanos(known.load(std::memory_order_relaxed), monotonic_nanos() - start_ns_),
                std::memory_order_relaxed);
  }

 private:
  int64_t start_ns_ = 0;
};

// Counts a run of the plan and says whether to measure its steps: the first few, then one in 64.
inline bool begin_run(Plan& plan) {
  uint64_t run = plan.runs.fetch_add(1, std::memory_order_relaxed);
  // Often at first, and again for as long as the plan lives: what is fed may change.
  if (run > 0 && ((run < 512 && (run & (run - 1)) == 0) || run % 1024 == 0)) plan.review_gear();
  return run < 4 || run % 64 == 0;
}

}  // namespace millrace
