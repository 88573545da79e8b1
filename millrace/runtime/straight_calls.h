#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/runtime/scratch.h"
#include "millrace/runtime/step_runner.h"

// Calling the steps of a plan's straight form, for run_straight.cc and run_loop.cc.

namespace millrace {

// Says when a run on its caller's thread is to end: at its deadline, or when it is interrupted.
class Watch {
 public:
  explicit Watch(Step& step)
      : step_(step), needed_(step.interrupted != nullptr || !step.deadline.is_none()) {}
  // False where nothing but the step's token ends the run, so that no clock need be read.
  bool needed() const { return needed_; }
  // The error that the run ends with, if it has to.
  Status look(int64_t now_ns);

 private:
  Step& step_;
  const bool needed_;
  int64_t asked_at_ns_ = 0;
};

// One thread's calls in one arena.
class StraightCalls {
 public:
  // The execution of a loop that a step is in, as KernelContext has it.
  struct Where {
    uint64_t frame = 0;
    uint64_t iteration = 0;
  };

  StraightCalls(Plan& plan, Step& step, StraightArena& arena)
      : plan_(plan), step_(step), arena_(arena), planned_(arena.planned.get()) {}

  Value* const* inputs_of(const StraightStep& step) const {
    return arena_.inputs.get() + step.first_input;
  }
  std::span<Value* const> all_inputs_of(const StraightStep& step) const {
    return {inputs_of(step), static_cast<size_t>(step.num_inputs)};
  }
  Value* outputs_of(const StraightStep& step) const {
    return arena_.slots.get() + step.first_output;
  }
  Value& slot(int32_t index) const { return arena_.slots[static_cast<size_t>(index)]; }

  [[gnu::always_inline]] Status call(const StraightStep& step, Where where) {
    if (step.needs_preparation) [[unlikely]]
      return call_prepared(step, where);
    return call_kernel(step, inputs_of(step), where);
  }
  // The error of a step with what a user needs to find the place.
  Status annotated(const StraightStep& step, const Status& status) const {
    return annotate_step(plan_, static_cast<size_t>(step.step),
                         with_inputs(status, all_inputs_of(step)));
  }
  void release(const StraightStep& step) {
    for (int k = 0; k < step.num_releases; ++k) {
      slot(plan_.releases[nth(step.first_release, k)]).clear();
    }
  }
  // Empties all slots, after an error.
  void clear() {
    for (int32_t s = 0; s < plan_.straight_slots; ++s) slot(s).clear();
  }

  Plan& plan() const { return plan_; }
  Step& step() const { return step_; }
  StraightArena& arena() const { return arena_; }

 private:
  [[gnu::always_inline]] Status call_kernel(const StraightStep& step, Value* const* inputs,
                                            Where where) {
    KernelContext ctx({.node = step.node,
                       .step = &step_,
                       .device = plan_.device.get(),
                       .inputs = inputs,
                       .outputs = outputs_of(step),
                       .num_inputs = step.num_inputs,
                       .num_outputs = step.num_outputs,
                       .movable = step.movable,
                       .frame = where.frame,
                       .iteration = where.iteration,
                       .host_outputs = step.host_outputs,
                       .output_types = step.output_types,
                       .planned = planned_ != nullptr ? planned_ + step.first_output : nullptr});
    MR_TRY(step.kernel->compute(ctx));
    return check_outputs(step.output_types, step.num_outputs, outputs_of(step));
  }
  [[gnu::noinline]] Status call_prepared(const StraightStep& step, Where where);

  Plan& plan_;
  Step& step_;
  StraightArena& arena_;
  Ref<Buffer>* const planned_;  // by slot; null: nothing is
};

}  // namespace millrace
