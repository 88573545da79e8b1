#include <vector>

#include "millrace/runtime/executor.h"
#include "millrace/runtime/scratch.h"
#include "millrace/runtime/step_runner.h"

namespace millrace {
namespace {

class StraightRun {
 public:
  StraightRun(Plan& plan, const ExecuteArgs& args)
      : plan_(plan), args_(args), step_(args.step), arena_(plan.scratch->take_arena()) {
    step_.device = plan.device.get();
  }
  ~StraightRun() { plan_.scratch->give_back(std::move(arena_)); }

  Status run() {
    bool measured = begin_run(plan_);
    CancellationToken* cancel = step_.cancel;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      if (cancel != nullptr && cancel->cancelled()) [[unlikely]]
        return fail(cancel->status());
      const PlanStep& step = plan_.steps[i];
      const StraightStep& place = plan_.straight[i];
      StepTimer timer(plan_, static_cast<int32_t>(i), measured, step_.trace);
      Status status = run_step(step, place);
      timer.stop(outputs_of(place));
      if (!status.ok()) [[unlikely]] {
        return fail(annotate_error(status, *step.node, plan_.origins[i]));
      }
      release(place);
    }
    return ok_status();
  }

 private:
  Value* inputs_of(const StraightStep& place, int i) {
    return arena_->inputs[static_cast<size_t>(place.first_input + i)];
  }

  Value* outputs_of(const StraightStep& place) { return arena_->slots.get() + place.first_output; }

  Status run_step(const PlanStep& step, const StraightStep& place) {
    Value* outputs = outputs_of(place);
    if (step.kind == StepKind::kFeed) {
      outputs[0] = Value::of(args_.feeds[static_cast<size_t>(step.position)]);
      return check_outputs(step, outputs);
    }
    if (step.kind == StepKind::kFetch) {
      MR_TRY_ASSIGN(args_.fetches[static_cast<size_t>(step.position)],
                    fetch_value(*inputs_of(place, 0), (place.movable & 1) != 0));
      return ok_status();
    }
    if (step.kind == StepKind::kNothing) return ok_status();
    KernelContext::Args a;
    a.node = step.node;
    a.step = &step_;
    a.inputs = &arena_->inputs[static_cast<size_t>(place.first_input)];
    a.outputs = outputs;
    a.num_inputs = step.num_inputs;
    a.num_outputs = step.num_outputs;
    a.movable = place.movable;
    if (needs_preparation(step)) [[unlikely]]
      return run_prepared(step, a);
    KernelContext ctx(a);
    MR_TRY(step.kernel->compute(ctx));
    return check_outputs(step, outputs);
  }

  Status run_prepared(const PlanStep& step, KernelContext::Args& a) {
    std::vector<Value*> inputs(a.inputs, a.inputs + a.num_inputs);
    std::vector<Value> copies(inputs.size());
    MR_TRY(prepare_inputs(step, inputs.data(), copies.data()));
    a.inputs = inputs.data();
    KernelContext ctx(a);
    MR_TRY(step.kernel->compute(ctx));
    return check_outputs(step, a.outputs);
  }

  void release(const StraightStep& place) {
    for (int k = 0; k < place.num_releases; ++k) {
      int32_t slot = plan_.releases[static_cast<size_t>(place.first_release + k)];
      arena_->slots[static_cast<size_t>(slot)].clear();
    }
  }

  Status fail(Status status) {
    for (int32_t s = 0; s < plan_.straight_slots; ++s)
      arena_->slots[static_cast<size_t>(s)].clear();
    return status;
  }

  Plan& plan_;
  const ExecuteArgs& args_;
  StepContext step_;
  std::unique_ptr<StraightArena> arena_;
};

}  // namespace

Status run_straight(Plan& plan, const ExecuteArgs& args) { return StraightRun(plan, args).run(); }

}  // namespace millrace
