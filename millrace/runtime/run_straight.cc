#include <vector>

#include "millrace/runtime/executor.h"
#include "millrace/runtime/run_loop.h"
#include "millrace/runtime/straight_calls.h"

namespace millrace {

Status Watch::look(int64_t now_ns) {
  constexpr int64_t kInterruptNs = 100'000'000;
  if (step_.deadline.expired()) {
    return deadline_exceeded("the run did not finish by its deadline");
  }
  if (asked_at_ns_ == 0) asked_at_ns_ = now_ns;
  if (step_.interrupted == nullptr || now_ns - asked_at_ns_ < kInterruptNs) return ok_status();
  asked_at_ns_ = now_ns;
  return step_.interrupted() ? cancelled("the run was interrupted") : ok_status();
}

Status StraightCalls::call_prepared(const StraightStep& step, Where where) {
  const PlanStep& plan_step = plan_.steps[static_cast<size_t>(step.step)];
  std::vector<Value*> inputs(inputs_of(step), inputs_of(step) + step.num_inputs);
  std::vector<Value> copies(inputs.size());
  MR_TRY(prepare_inputs(*plan_step.node, plan_step.needs, inputs.data(), copies.data()));
  return call_kernel(step, inputs.data(), where);
}

namespace {

class StraightRun {
 public:
  StraightRun(Plan& plan, Step& step)
      : plan_(plan),
        step_(step),
        arena_(plan.scratch->take_arena()),
        calls_(plan, step, *arena_),
        watch_(step) {}
  ~StraightRun() { plan_.scratch->give_back(std::move(arena_)); }

  Status run() {
    const RunTimer timer(plan_);
    Status status = run_steps();
    if (!status.ok()) [[unlikely]] {
      calls_.clear();
      return status;
    }
    timer.stop(plan_.straight_ns);
    return status;
  }

 private:
  Status run_steps() {
    bool measured = begin_run(plan_);
    const bool watched = watch_.needed();
    CancellationToken* cancel = step_.cancel.get();
    TraceCollector* trace = step_.trace.get();
    if (trace != nullptr) trace->keep(Ref<Plan>(&plan_));
    size_t size = plan_.straight.size();
    for (size_t i = 0; i < size; ++i) {
      if (cancel != nullptr && cancel->cancelled()) [[unlikely]]
        return cancel->status();
      const StraightStep& step = plan_.straight[i];
      if (watched && i > 0) MR_TRY(look_up(plan_.straight[i - 1]));
      if (step.kind == StepKind::kLoop) [[unlikely]] {
        MR_TRY(run_loop(step, measured));
        calls_.release(step);
        continue;
      }
      // Kernels are made one by one and lie anywhere.
      if (i + 1 < size) __builtin_prefetch(plan_.straight[i + 1].kernel);
      const bool calls = step.kind == StepKind::kKernel;
      StepTimer timer(plan_, step.step, measured, calls ? trace : nullptr,
                      calls_.all_inputs_of(step));
      Status status = calls ? calls_.call(step, {}) : run_without_kernel(step);
      timer.stop(calls_.outputs_of(step));
      if (!status.ok()) [[unlikely]] {
        return calls_.annotated(step, status);
      }
      calls_.release(step);
    }
    return ok_status();
  }

  [[gnu::noinline]] Status run_loop(const StraightStep& step, bool measured) {
    LoopRun loops(calls_, &watch_, measured);
    PlanLoop& loop = *plan_.loop_of(plan_.steps[static_cast<size_t>(step.step)].frame);
    return loops.run(loop, calls_.inputs_of(step), step.movable, calls_.outputs_of(step), {})
        .status();
  }

  Status run_without_kernel(const StraightStep& step) {
    Value* outputs = calls_.outputs_of(step);
    const size_t position =
        static_cast<size_t>(plan_.steps[static_cast<size_t>(step.step)].position);
    if (step.kind == StepKind::kFeed) {
      outputs[0] = Value::of(step_.feeds[position]);
      return check_outputs(step.output_types, step.num_outputs, outputs);
    }
    if (step.kind == StepKind::kFetch) {
      MR_TRY_ASSIGN(step_.fetches[position],
                    fetch_value(*calls_.inputs_of(step)[0], (step.movable & 1) != 0));
    }
    if (step.kind == StepKind::kForward) {  // a LoopCond whose loop was cut off by feeds
      outputs[0] = *calls_.inputs_of(step)[0];
    }
    return ok_status();
  }

  // Ends the run when it is late or interrupted. Reading the clock costs as much as a small step,
  // so it is read once steps that should take kLookUpNs, by what was measured, are done.
  Status look_up(const StraightStep& done) {
    constexpr int64_t kLookUpNs = 1'000'000;
    since_look_ns_ +=
        16 + plan_.step_ns[static_cast<size_t>(done.step)].load(std::memory_order_relaxed);
    if (since_look_ns_ < kLookUpNs) [[likely]]
      return ok_status();
    since_look_ns_ = 0;
    return watch_.look(monotonic_nanos());
  }

  Plan& plan_;
  Step& step_;
  std::unique_ptr<StraightArena> arena_;
  StraightCalls calls_;
  Watch watch_;
  int64_t since_look_ns_ = 0;
};

}  // namespace

Status run_straight(Plan& plan, Step& step) { return StraightRun(plan, step).run(); }

}  // namespace millrace
