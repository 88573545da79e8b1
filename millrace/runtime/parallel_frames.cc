// How values reach the steps that wait for them, within an iteration and from one to another.

#include <algorithm>

#include "millrace/kernel/rendezvous.h"
#include "millrace/runtime/parallel_run.h"
#include "millrace/runtime/pending.h"
#include "millrace/runtime/run_loop.h"

namespace millrace {

void ParallelRun::arrive(const PlanStep& step, Iteration* iteration, bool node_dead,
                         ReadyList& next) {
  for (int k = 0; k < step.num_edges; ++k) {
    const PlanEdge& edge = plan_->edges[nth(step.first_edge, k)];
    const PlanStep& to = plan_->steps[static_cast<size_t>(edge.step)];
    bool dead = node_dead;
    if (edge.input >= 0) dead = input(to, iteration, edge.input).dead();
    std::atomic<uint64_t>& pending = iteration->pending[static_cast<size_t>(to.index_in_frame)];
    if (to.kind == StepKind::kMerge) {
      arrive_at_merge(edge, to, iteration, pending, dead, next);
      continue;
    }
    uint64_t delta = dead ? pending::kDeadArrival : pending::kArrival;
    uint64_t now = pending.load(std::memory_order_acquire);
    // The last one missing needs no locked instruction.
    now = (now & 0xffffffff) == 1 ? now + delta
                                  : pending.fetch_add(delta, std::memory_order_acq_rel) + delta;
    if (pending::step_ready(now)) {
      bool runs_dead = pending::step_dead(now) && to.kind != StepKind::kNothing;
      next.push_back({edge.step, runs_dead, iteration});
    }
  }
  for (int i = 0; i < step.num_outputs; ++i) {
    size_t index = nth(step.first_output, i);
    if (plan_->frames[static_cast<size_t>(step.output_frame)].initial_uses[index] == 0) {
      iteration->slots[index].clear();
    }
  }
}

void ParallelRun::arrive_at_merge(const PlanEdge& edge, const PlanStep& to, Iteration* iteration,
                                  std::atomic<uint64_t>& pending, bool dead, ReadyList& next) {
  uint64_t inputs = static_cast<uint64_t>(to.num_merged);
  uint64_t delta = pending::kMergeControl;
  if (edge.input >= 0 && dead) {
    delta = pending::kMergeDead;
  } else if (edge.input >= 0) {
    delta = pending::kMergeLive;
    iteration->chosen[static_cast<size_t>(to.index_in_frame)].store(edge.input,
                                                                    std::memory_order_relaxed);
  }
  uint64_t before = pending.fetch_add(delta, std::memory_order_acq_rel);
  uint64_t now = before + delta;
  if (pending::merge_num_live(now) > 1) {
    return step_->fail(annotate_step(*plan_, static_cast<size_t>(edge.step), two_live_inputs()));
  }
  if (pending::merge_ready(now, inputs) && !pending::merge_ready(before, inputs)) {
    next.push_back({edge.step, pending::merge_num_live(now) == 0, iteration});
  }
}

void ParallelRun::account(Iteration* iteration, int64_t delta, ReadyList& next) {
  if (iteration->frame == &root_) return;
  if (delta == 0) return;
  if (iteration->outstanding.fetch_add(delta, std::memory_order_acq_rel) + delta == 0) {
    end_iteration(iteration, next);
  }
}

void ParallelRun::deliver_dead(int32_t step_index, Iteration* iteration, ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
  if (step.kind == StepKind::kFetch) {
    note_dead_fetch(step);
  } else if (step.control_flow == ControlFlow::kEnter) {
    Value dead;
    dead.set_dead();
    deliver(step_index, iteration, std::move(dead), next);
  } else if (step.control_flow == ControlFlow::kExit) {
    MutexLock lock(iteration->frame->mu);
    if (iteration->number == iteration->frame->newest) {
      iteration->frame->dead_exits.push_back(step_index);
    }
  } else if (step.control_flow != ControlFlow::kNextIteration) {
    for (int i = 0; i < step.num_outputs; ++i) slot(iteration, step.first_output + i).set_dead();
    size_t before = next.size();
    arrive(step, iteration, /*node_dead=*/true, next);
    return account(iteration, static_cast<int64_t>(next.size() - before) - 1, next);
  }
  account(iteration, -1, next);
}

void ParallelRun::note_dead_fetch(const PlanStep& step) {
  step_->fail_at_end(invalid_argument("The tensor returned for ", step.node->name, " (fetch ",
                                      step.position,
                                      ") was not valid: it lies on a branch that was not taken"));
  if (on_fetch) on_fetch(step.position, Tensor());
}

int64_t ParallelRun::deliver(int32_t step_index, Iteration* iteration, Value&& value,
                             ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
  switch (step.control_flow) {
    case ControlFlow::kEnter:
      enter(step_index, iteration, std::move(value), next);
      return 0;
    case ControlFlow::kExit:
      leave(step_index, iteration, std::move(value), next);
      return 0;
    case ControlFlow::kNextIteration:
      next_iteration(step_index, iteration, std::move(value), next);
      return 0;
    default:
      return put(step, iteration, std::move(value), next);
  }
}

void ParallelRun::leave(int32_t step_index, Iteration* iteration, Value&& value, ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
  Frame* frame = iteration->frame;
  bool again = false;
  {
    MutexLock lock(frame->mu);
    auto& left = frame->live_exits;
    again = std::find(left.begin(), left.end(), step_index) != left.end();
    if (!again) left.push_back(step_index);
  }
  if (again) {
    return step_->fail(annotate_step(
        *plan_, static_cast<size_t>(step_index),
        invalid_argument("a value leaves the loop '", frame->desc->name,
                         "' in more than one iteration; take it from the false side of a Switch on "
                         "the LoopCond")));
  }
  Iteration* parent = frame->parent_iteration;
  account(parent, put(step, parent, std::move(value), next), next);
}

int64_t ParallelRun::put(const PlanStep& step, Iteration* iteration, Value&& value,
                         ReadyList& next) {
  size_t before = next.size();
  bool dead = value.dead();
  slot(iteration, step.first_output) = std::move(value);
  arrive(step, iteration, dead, next);
  return static_cast<int64_t>(next.size() - before);
}

Frame* ParallelRun::child_frame(const PlanStep& step, Iteration* iteration) {
  Frame* parent = iteration->frame;
  const PlanFrame& desc = plan_->frames[static_cast<size_t>(step.output_frame)];
  MutexLock lock(parent->mu);
  Frame*& child = iteration->children[static_cast<size_t>(desc.child_index)];
  if (child != nullptr) return child;
  child = new Frame;
  child->desc = &desc;
  child->static_id = step.output_frame;
  child->parent = parent;
  child->parent_iteration = iteration;
  child->id = frame_id(parent->id, static_cast<uint64_t>(iteration->number), desc.name);
  const PlanLoop* const loop = plan_->loop_of(step.output_frame);
  // What a run has changed is told apart by iterations.
  child->gathers = loop != nullptr && updates_ == nullptr &&
                   !(step_->max_threads > 1 && loop->worth_frames.load(std::memory_order_relaxed));
  if (parent != &root_) iteration->outstanding.fetch_add(1, std::memory_order_relaxed);
  MutexLock child_lock(child->mu);
  Iteration* first = add_iteration(*child);
  first->outstanding.store(desc.num_enters, std::memory_order_relaxed);
  return child;
}

Iteration* ParallelRun::add_iteration(Frame& frame) {
  Iteration* iteration = nullptr;
  if (frame.spare.empty()) {
    iteration = plan_->scratch->take_iteration(frame.static_id);
  } else {
    iteration = frame.spare.back();
    frame.spare.pop_back();
  }
  iteration->frame = &frame;
  iteration->number = ++frame.newest;
  frame.live.push_back(iteration);
  frame.dead_exits.clear();
  return iteration;
}

void ParallelRun::enter(int32_t step_index, Iteration* from, Value&& value, ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
  Frame* frame = child_frame(step, from);
  Iteration* first = nullptr;
  int64_t started = 0;
  {
    MutexLock lock(frame->mu);
    first = frame->live.front();  // iteration 0 stays until every Enter has come
    started = frame->gathers ? gather(step, *frame, std::move(value), next)
                             : enter_now(step_index, *frame, std::move(value), next);
  }
  account(first, started - 1, next);
}

int64_t ParallelRun::enter_now(int32_t step_index, Frame& frame, Value&& value, ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
  Iteration* first = frame.live.front();
  if (step.constant_enter) {
    frame.constants.push_back({step_index, value});
    for (Iteration* other : frame.live) {
      if (other == first) continue;
      int64_t ready = put(step, other, Value(value), next);
      other->outstanding.fetch_add(ready, std::memory_order_relaxed);
    }
  }
  return put(step, first, std::move(value), next);
}

int64_t ParallelRun::gather(const PlanStep& step, Frame& frame, Value&& value, ReadyList& next) {
  Iteration* first = frame.live.front();
  frame.entered_dead |= value.dead();
  slot(first, step.first_output) = std::move(value);
  if (++frame.entered < frame.desc->num_enters) return 0;
  if (frame.entered_dead) return begin_iterations(frame, next);
  next.push_back({plan_->loop_of(frame.static_id)->loop_cond, false, first});
  return 1;
}

void ParallelRun::run_loop(const Ready& ready, ReadyList& next) {
  Iteration* first = ready.iteration;
  Frame* frame = first->frame;
  PlanLoop& loop = *plan_->loop_of(frame->static_id);
  std::vector<Value*> inputs;
  for (int32_t index : loop.enters) {
    inputs.push_back(&slot(first, plan_->steps[static_cast<size_t>(index)].first_output));
  }
  std::vector<Value> outputs(loop.exits.size());
  std::unique_ptr<StraightArena> arena = plan_->scratch->take_arena();
  StraightCalls calls(*plan_, *step_, *arena);
  LoopRun loops(calls, nullptr, measured_);
  const Iteration& around = *frame->parent_iteration;
  const Result<LoopRun::End> end =
      loops.run(loop, inputs.data(), ~uint64_t{0}, outputs.data(),
                {.frame = around.frame->id, .iteration = static_cast<uint64_t>(around.number)},
                /*may_stop=*/step_->max_threads > 1);
  const bool stopped = end.ok() && *end == LoopRun::End::kStopped;
  if (stopped) loops.take_entries(loop, inputs.data());
  if (!end.ok() || stopped) calls.clear();
  plan_->scratch->give_back(std::move(arena));
  if (!end.ok()) return step_->fail(end.status());
  int64_t started = 0;
  if (stopped) {
    MutexLock lock(frame->mu);
    started = begin_iterations(*frame, next);
  }
  for (size_t i = 0; !stopped && i < outputs.size(); ++i) {
    leave(loop.exits[i], first, std::move(outputs[i]), next);
  }
  account(first, started - 1, next);
}

int64_t ParallelRun::begin_iterations(Frame& frame, ReadyList& next) {
  frame.gathers = false;
  Iteration* first = frame.live.front();
  const size_t before = next.size();
  for (int32_t index : plan_->loop_of(frame.static_id)->enters) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(index)];
    const Value& value = slot(first, step.first_output);
    if (step.constant_enter) frame.constants.push_back({index, value});
    arrive(step, first, value.dead(), next);
  }
  return static_cast<int64_t>(next.size() - before);
}

void ParallelRun::next_iteration(int32_t step_index, Iteration* iteration, Value&& value,
                                 ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
  Frame* frame = iteration->frame;
  MutexLock lock(frame->mu);
  if (iteration->number == frame->newest) {
    if (static_cast<int64_t>(frame->live.size()) >= frame->desc->parallel_iterations) {
      frame->parked.push_back({step_index, std::move(value)});
      return;
    }
    start_iteration(*frame, next);
  }
  size_t offset = static_cast<size_t>(iteration->number + 1 - frame->live.front()->number);
  Iteration* target = frame->live[offset];
  int64_t started = put(step, target, std::move(value), next);
  target->outstanding.fetch_add(started, std::memory_order_relaxed);
}

Iteration* ParallelRun::start_iteration(Frame& frame, ReadyList& next) {
  Iteration* fresh = add_iteration(frame);
  size_t before = next.size();
  for (const Frame::Parked& constant : frame.constants) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(constant.step)];
    Value& kept = slot(fresh, step.first_output);
    if (kept.empty()) kept = constant.value;
    arrive(step, fresh, kept.dead(), next);
  }
  // Held by the iteration before it.
  fresh->outstanding.store(static_cast<int64_t>(next.size() - before) + 1,
                           std::memory_order_relaxed);
  return fresh;
}

void ParallelRun::end_iteration(Iteration* iteration, ReadyList& next) {
  while (iteration != nullptr) {
    Frame* frame = iteration->frame;
    Iteration* over = nullptr;
    bool frame_over = false;
    {
      MutexLock lock(frame->mu);
      frame->live.pop_front();
      iteration->recycle(*frame->desc);
      frame->spare.push_back(iteration);
      if (!frame->parked.empty()) start_parked(*frame, next);
      if (frame->live.empty()) {
        frame_over = true;
      } else {
        // The next iteration is the oldest now.
        Iteration* oldest = frame->live.front();
        if (oldest->outstanding.fetch_sub(1, std::memory_order_acq_rel) == 1) over = oldest;
      }
    }
    iteration = frame_over ? end_frame(frame, next) : over;
  }
}

void ParallelRun::start_parked(Frame& frame, ReadyList& next) {
  std::vector<Frame::Parked> parked = std::move(frame.parked);
  frame.parked.clear();
  Iteration* fresh = start_iteration(frame, next);
  for (Frame::Parked& p : parked) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(p.step)];
    int64_t started = put(step, fresh, std::move(p.value), next);
    fresh->outstanding.fetch_add(started, std::memory_order_relaxed);
  }
}

void ParallelRun::delete_frame(Frame* frame) {
  {
    MutexLock lock(frame->mu);
    for (Iteration* spare : frame->spare) plan_->scratch->give_back(frame->static_id, spare);
  }
  delete frame;
}

Iteration* ParallelRun::end_frame(Frame* frame, ReadyList& next) {
  Iteration* parent = frame->parent_iteration;
  std::vector<int32_t> exits;
  {
    MutexLock lock(frame->mu);
    exits = std::move(frame->dead_exits);
    for (int32_t left : frame->live_exits) std::erase(exits, left);
  }
  size_t before = next.size();
  for (int32_t index : exits) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(index)];
    Value dead;
    dead.set_dead();
    put(step, parent, std::move(dead), next);
  }
  int64_t started = static_cast<int64_t>(next.size() - before);
  {
    MutexLock lock(frame->parent->mu);
    parent->children[static_cast<size_t>(frame->desc->child_index)] = nullptr;
  }
  delete_frame(frame);
  if (parent->frame == &root_) return nullptr;
  int64_t delta = started - 1;
  bool over = parent->outstanding.fetch_add(delta, std::memory_order_acq_rel) + delta == 0;
  return over ? parent : nullptr;
}

}  // namespace millrace
