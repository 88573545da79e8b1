#include "millrace/runtime/run_loop.h"

#include "millrace/kernel/rendezvous.h"

namespace millrace {

using Where = StraightCalls::Where;

Result<LoopRun::End> LoopRun::run(PlanLoop& loop, Value* const* inputs, uint64_t movable,
                                  Value* outputs, Where where, bool may_stop) {
  Plan& plan = calls_.plan();
  const bool outer_timed = timed_;
  const bool measured = measured_ && timed_;
  StepTimer timer(plan, loop.loop_cond, measured, nullptr);
  MR_TRY(enter(loop, inputs, movable));
  Where inside{.frame = frame_id(where.frame, where.iteration,
                                 plan.frames[static_cast<size_t>(loop.frame)].name)};
  MR_TRY(run_range(loop, loop.before, inside));
  while (true) {
    MR_TRY(end_if_asked());
    MR_TRY(run_range(loop, loop.condition, inside));
    MR_TRY_ASSIGN(const bool again, goes_on(loop));
    if (!again) break;
    if (inside.iteration == 0) MR_TRY(run_range(loop, loop.first_time, inside));
    MR_TRY(run_range(loop, loop.body, inside));
    for (const PlanLoop::Move& m : loop.moves) move(m, &calls_.slot(m.to));
    for (int32_t slot : loop.clear) calls_.slot(slot).clear();
    if (++inside.iteration == kMeasured && measured) {
      timed_ = traced();
      if (may_stop) {
        plan.review_gear();
        if (loop.worth_frames.load(std::memory_order_relaxed)) return End::kStopped;
      }
    }
  }
  MR_TRY(run_range(loop, loop.after, inside));
  for (const PlanLoop::Move& m : loop.leaving) move(m, outputs + m.to);
  for (int32_t k = 0; k < loop.num_slots; ++k) calls_.slot(loop.first_slot + k).clear();
  timed_ = outer_timed;
  timer.stop(nullptr);
  return End::kLeft;
}

void LoopRun::take_entries(const PlanLoop& loop, Value* const* inputs) {
  for (const PlanLoop::Entry& entry : loop.entries) {
    *inputs[entry.input] = std::move(calls_.slot(entry.slot));
    calls_.slot(entry.slot).clear();
  }
}

Status LoopRun::enter(const PlanLoop& loop, Value* const* inputs, uint64_t movable) {
  for (const PlanLoop::Entry& entry : loop.entries) {
    const bool take = entry.input < 64 && ((movable >> entry.input) & 1) != 0;
    const Status status = hand_on(*inputs[entry.input], entry.read, take, calls_.slot(entry.slot));
    if (status.ok()) [[likely]]
      continue;
    const int32_t step = loop.enters[static_cast<size_t>(entry.input)];
    return annotate_step(calls_.plan(), static_cast<size_t>(step), status);
  }
  return ok_status();
}

inline Status LoopRun::run_range(const PlanLoop& loop, PlanLoop::Range range, Where where) {
  if (range.first == range.last) return ok_status();
  return timed_ ? run_steps<true>(loop, range, where) : run_steps<false>(loop, range, where);
}

template <bool kTimed>
Status LoopRun::run_steps(const PlanLoop& loop, PlanLoop::Range range, Where where) {
  Plan& plan = calls_.plan();
  TraceCollector* const trace = kTimed ? calls_.step().trace.get() : nullptr;
  for (int32_t i = range.first; i < range.last; ++i) {
    const StraightStep& step = plan.loop_steps[static_cast<size_t>(i)];
    if (step.kind == StepKind::kKernel) [[likely]] {
      Status status;
      if constexpr (kTimed) {
        StepTimer timer(plan, step.step, measured_, trace, calls_.all_inputs_of(step));
        status = calls_.call(step, where);
        if (status.ok()) timer.stop(calls_.outputs_of(step));
      } else {
        status = calls_.call(step, where);
      }
      if (!status.ok()) [[unlikely]]
        return calls_.annotated(step, status);
    } else if (step.kind == StepKind::kGuard) {
      const PlanLoop::Guard& guard = loop.guards[static_cast<size_t>(step.step)];
      if (is_guarded(guard)) i += guard.skip;
      continue;
    } else {
      MR_TRY(run_other(step, static_cast<size_t>(i), where));
    }
    calls_.release(step);
  }
  return ok_status();
}

bool LoopRun::is_guarded(const PlanLoop::Guard& guard) {
  bool dead = false;
  for (int32_t flag : guard.flags) dead |= calls_.arena().dead[static_cast<size_t>(flag)];
  if (!dead) return false;
  for (int32_t slot : guard.clear) calls_.slot(slot).clear();
  for (int32_t slot : guard.kill) calls_.slot(slot).set_dead();
  return true;
}

Status LoopRun::run_other(const StraightStep& step, size_t index, Where where) {
  Plan& plan = calls_.plan();
  if (step.kind == StepKind::kLoop) {
    PlanLoop& inner = *plan.loop_of(plan.steps[static_cast<size_t>(step.step)].frame);
    return run(inner, calls_.inputs_of(step), step.movable, calls_.outputs_of(step), where)
        .status();
  }
  const int32_t flags = plan.loop_flags[index];
  const Status status =
      step.kind == StepKind::kSwitch ? run_switch(step, flags) : run_merge(step, flags);
  if (status.ok()) return status;
  return annotate_step(plan, static_cast<size_t>(step.step), status);
}

Status LoopRun::run_switch(const StraightStep& step, int32_t flags) {
  Value* const* inputs = calls_.inputs_of(step);
  MR_TRY_ASSIGN(const int taken, switch_output(*inputs[1], step.num_outputs));
  Value* outputs = calls_.outputs_of(step);
  for (int k = 0; k < step.num_outputs; ++k) {
    calls_.arena().dead[nth(flags, k)] = k != taken;
    if (k != taken) outputs[k].set_dead();
  }
  const bool by_value = !is_ref(step.node->input_types[0]);
  return hand_on(*inputs[0], by_value, (step.movable & 1) != 0, outputs[taken]);
}

Status LoopRun::run_merge(const StraightStep& step, int32_t flags) {
  Value* const* inputs = calls_.inputs_of(step);
  Value* outputs = calls_.outputs_of(step);
  int chosen = -1;
  for (int k = 0; k < step.num_inputs; ++k) {
    if (inputs[k]->dead()) continue;
    if (chosen >= 0) return two_live_inputs();
    chosen = k;
  }
  if (flags >= 0) calls_.arena().dead[static_cast<size_t>(flags)] = chosen < 0;
  if (chosen < 0) {
    for (int k = 0; k < step.num_outputs; ++k) outputs[k].set_dead();
    return ok_status();
  }
  const bool by_value = !is_ref(step.node->input_types[static_cast<size_t>(chosen)]);
  const bool movable = chosen < 64 && ((step.movable >> chosen) & 1) != 0;
  MR_TRY(hand_on(*inputs[chosen], by_value, movable, outputs[0]));
  if (step.num_outputs > 1) outputs[1] = Value::of(Tensor::scalar<int32_t>(chosen));
  return ok_status();
}

Result<bool> LoopRun::goes_on(const PlanLoop& loop) const {
  const Value& value = calls_.slot(loop.predicate);
  if (value.tensor.dtype() == DType::kBool && value.tensor.num_elements() == 1) [[likely]]
    return value.tensor.item<bool>();
  // A Switch says so.
  const Plan& plan = calls_.plan();
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (step.kind != StepKind::kSwitch || step.frame != loop.frame) continue;
    if (Status status = switch_output(value, step.num_outputs).status(); !status.ok()) {
      return annotate_step(plan, i, status);
    }
  }
  return internal("loop '", plan.frames[static_cast<size_t>(loop.frame)].name,
                  "': the predicate is no bool");
}

void LoopRun::move(const PlanLoop::Move& move, Value* to) {
  Value& from = calls_.slot(move.from);
  if (!move.take) {
    *to = from;
    return;
  }
  *to = std::move(from);
  from.clear();  // NOLINT(bugprone-use-after-move): its state says what to drop
}

Status LoopRun::end_if_asked() {
  CancellationToken* const cancel = calls_.step().cancel.get();
  if (cancel != nullptr && cancel->cancelled()) [[unlikely]]
    return cancel->status();
  if (watch_ == nullptr || !watch_->needed() || --until_look_ > 0) [[likely]]
    return ok_status();
  // About once in half a millisecond, whatever an iteration costs.
  constexpr int64_t kOften = 250'000, kSeldom = 1'000'000;
  constexpr uint32_t kMost = 1 << 16;
  const int64_t now = monotonic_nanos();
  const int64_t passed = looked_at_ns_ == 0 ? kSeldom : now - looked_at_ns_;
  looked_at_ns_ = now;
  if (passed < kOften && stride_ < kMost) stride_ *= 2;
  if (passed > kSeldom && stride_ > 1) stride_ /= 2;
  until_look_ = stride_;
  return watch_->look(now);
}

}  // namespace millrace
