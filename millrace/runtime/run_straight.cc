#include <vector>

#include "millrace/runtime/executor.h"
#include "millrace/runtime/scratch.h"
#include "millrace/runtime/step_runner.h"

namespace millrace {
namespace {

class StraightRun {
 public:
  StraightRun(Plan& plan, Step& step)
      : plan_(plan),
        step_(step),
        arena_(plan.scratch->take_arena()),
        planned_(arena_->planned.get()) {}
  ~StraightRun() { plan_.scratch->give_back(std::move(arena_)); }

  Status run() {
    bool measured = begin_run(plan_);
    const bool watched = step_.interrupted != nullptr || !step_.deadline.is_none();
    CancellationToken* cancel = step_.cancel.get();
    TraceCollector* trace = step_.trace.get();
    size_t size = plan_.straight.size();
    for (size_t i = 0; i < size; ++i) {
      if (cancel != nullptr && cancel->cancelled()) [[unlikely]]
        return fail(cancel->status());
      if (watched && i > 0) MR_TRY(look_up(i - 1));
      const StraightStep& step = plan_.straight[i];
      // Kernels are made one by one and lie anywhere.
      if (i + 1 < size) __builtin_prefetch(plan_.straight[i + 1].kernel);
      StepTimer timer(plan_, static_cast<int32_t>(i), measured, trace);
      Status status = run_step(step, i);
      timer.stop(outputs_of(step));
      if (!status.ok()) [[unlikely]] {
        const std::span inputs(inputs_of(step), static_cast<size_t>(step.num_inputs));
        return fail(annotate_step(plan_, i, with_inputs(status, inputs)));
      }
      release(step);
    }
    return ok_status();
  }

 private:
  Value* const* inputs_of(const StraightStep& step) {
    return arena_->inputs.get() + step.first_input;
  }
  Value* outputs_of(const StraightStep& step) { return arena_->slots.get() + step.first_output; }

  Status run_step(const StraightStep& step, size_t index) {
    if (step.kind != StepKind::kKernel) [[unlikely]]
      return run_without_kernel(step);
    if (step.needs_preparation) [[unlikely]]
      return run_prepared(step, plan_.steps[index]);
    return run_kernel(step, inputs_of(step));
  }

  [[gnu::always_inline]] Status run_kernel(const StraightStep& step, Value* const* inputs) {
    KernelContext ctx({.node = step.node,
                       .step = &step_,
                       .device = plan_.device.get(),
                       .inputs = inputs,
                       .outputs = outputs_of(step),
                       .num_inputs = step.num_inputs,
                       .num_outputs = step.num_outputs,
                       .movable = step.movable,
                       .host_outputs = step.host_outputs,
                       .output_types = step.output_types,
                       .planned = planned_ != nullptr ? planned_ + step.first_output : nullptr});
    MR_TRY(step.kernel->compute(ctx));
    return check_outputs(step.output_types, step.num_outputs, outputs_of(step));
  }

  [[gnu::noinline]] Status run_prepared(const StraightStep& step, const PlanStep& plan_step) {
    std::vector<Value*> inputs(inputs_of(step), inputs_of(step) + step.num_inputs);
    std::vector<Value> copies(inputs.size());
    MR_TRY(prepare_inputs(*plan_step.node, plan_step.needs, inputs.data(), copies.data()));
    return run_kernel(step, inputs.data());
  }

  Status run_without_kernel(const StraightStep& step) {
    Value* outputs = outputs_of(step);
    if (step.kind == StepKind::kFeed) {
      outputs[0] = Value::of(step_.feeds[static_cast<size_t>(step.position)]);
      return check_outputs(step.output_types, step.num_outputs, outputs);
    }
    if (step.kind == StepKind::kFetch) {
      MR_TRY_ASSIGN(step_.fetches[static_cast<size_t>(step.position)],
                    fetch_value(*inputs_of(step)[0], (step.movable & 1) != 0));
    }
    if (step.kind == StepKind::kForward) {  // a LoopCond whose loop was cut off by feeds
      outputs[0] = *inputs_of(step)[0];
    }
    return ok_status();
  }

  void release(const StraightStep& step) {
    for (int k = 0; k < step.num_releases; ++k) {
      int32_t slot = plan_.releases[nth(step.first_release, k)];
      arena_->slots[static_cast<size_t>(slot)].clear();
    }
  }

  // Ends the run when it is late or interrupted. Reading the clock costs as much as a small step,
  // so it is read once steps that should take kLookUpNs, by what was measured, are done.
  Status look_up(size_t done) {
    constexpr int64_t kLookUpNs = 1'000'000;
    constexpr int64_t kInterruptNs = 100'000'000;
    since_look_ns_ += 16 + plan_.step_ns[done].load(std::memory_order_relaxed);
    if (since_look_ns_ < kLookUpNs) [[likely]]
      return ok_status();
    since_look_ns_ = 0;
    if (step_.deadline.expired()) {
      return fail(deadline_exceeded("the run did not finish by its deadline"));
    }
    const int64_t now = monotonic_nanos();
    if (asked_at_ns_ == 0) asked_at_ns_ = now;
    if (step_.interrupted == nullptr || now - asked_at_ns_ < kInterruptNs) return ok_status();
    asked_at_ns_ = now;
    return step_.interrupted() ? fail(cancelled("the run was interrupted")) : ok_status();
  }

  Status fail(Status status) {
    for (int32_t s = 0; s < plan_.straight_slots; ++s)
      arena_->slots[static_cast<size_t>(s)].clear();
    return status;
  }

  Plan& plan_;
  Step& step_;
  std::unique_ptr<StraightArena> arena_;
  Ref<Buffer>* const planned_;  // by slot; null: nothing is
  int64_t since_look_ns_ = 0;
  int64_t asked_at_ns_ = 0;
};

}  // namespace

Status run_straight(Plan& plan, Step& step) { return StraightRun(plan, step).run(); }

}  // namespace millrace
