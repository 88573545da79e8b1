#include <vector>

#include "millrace/base/spare_thread.h"
#include "millrace/base/str_cat.h"
#include "millrace/base/thread_pool.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/runtime/parallel_run.h"

namespace millrace {
namespace {

// Steps cheaper than this run where they became ready; a hand-over costs about as much.
constexpr uint32_t kCheapNs = 3000;
// A thread with this many ready steps gives half of them away.
constexpr size_t kShareAt = 64;

// While it lives, a kernel that may take long is among those that the step's rendezvous (may be
// null) tells of.
class WaitNote {
 public:
  WaitNote(Rendezvous* rendezvous, const PlanStep& step) : rendezvous_(rendezvous) {
    if (rendezvous_ == nullptr) return;
    wait_.op = step.node->op->name;
    wait_.node = step.node->name;
    rendezvous_->begin_wait(wait_);
  }
  ~WaitNote() {
    if (rendezvous_ != nullptr) rendezvous_->end_wait(wait_);
  }
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;

 private:
  Rendezvous* const rendezvous_;
  Rendezvous::KernelWait wait_;
};

// Whether all that a run of the plan computes is known to be quick, as SpareThread means it.
bool is_quick(const Plan& plan) {
  if (!plan.has_async || plan.has_frames || plan.has_blocking) return false;
  int64_t total_ns = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (step.kind != StepKind::kKernel) continue;
    if (step.async && !step.runs_when_dead) return false;
    if (step.async) continue;
    const int64_t ns = plan.step_ns[i].load(std::memory_order_relaxed);
    total_ns += ns;
    if (ns == 0 || total_ns > SpareThread::kQuickNs) return false;
  }
  return true;
}

}  // namespace

ParallelRun::ParallelRun(Ref<Plan> plan, Ref<Step> step)
    : plan_(std::move(plan)), step_(std::move(step)), timer_(*plan_) {
  root_.desc = &plan_->frames[0];
  root_iteration_ = plan_->scratch->take_iteration(0);
  root_iteration_->frame = &root_;
  measured_ = begin_run(*plan_);
  quick_ = is_quick(*plan_);
  if (step_->trace) step_->trace->keep(plan_);
  if (step_->rendezvous) updates_ = step_->rendezvous->updates.get();
}

void ParallelRun::start(bool feeds_later) {
  Ref<ParallelRun> self(this);
  fed_later_ = feeds_later;
  // One more than there are steps to start, so that the run cannot end before all have started.
  in_flight_.store(static_cast<int64_t>(plan_->roots.size() + plan_->feeds.size()) + 1);
  ReadyList ready;
  for (int32_t s : plan_->roots) ready.push_back({s, false, root_iteration_});
  if (!feeds_later) {
    for (int32_t s : plan_->feeds) ready.push_back({s, false, root_iteration_});
  }
  begin(std::move(ready));
  finish_steps(1);
}

void ParallelRun::begin(ReadyList ready) {
  if (plan_->enqueues) return run_in_order(std::move(ready));
  ReadyList todo;
  hand_out(ready, todo);
  run_from(std::move(todo));
}

void ParallelRun::feed(int32_t step, Tensor value) {
  const PlanStep& s = plan_->steps[static_cast<size_t>(step)];
  Value& slot = root_iteration_->slots[static_cast<size_t>(s.first_output)];
  slot = Value::of(std::move(value));
  begin({{step, false, root_iteration_}});
}

void ParallelRun::abandon_feeds(int64_t count) {
  if (count > 0) finish_steps(count);
}

void ParallelRun::run_from(ReadyList todo) {
  ReadyList next;
  while (!todo.empty()) {
    Ready ready = todo.back();
    todo.pop_back();
    next.clear();
    if (!execute(ready, next)) continue;  // goes on elsewhere
    finish(next, todo);
  }
}

void ParallelRun::finish(ReadyList& next, ReadyList& todo) {
  if (count_finished(next)) hand_out(next, todo);
}

void ParallelRun::hand_out(ReadyList& next, ReadyList& todo) {
  if (step_->trace) {
    for (Ready& ready : next) ready.scheduled_ns = monotonic_nanos();
  }
  ReadyList loops;
  for (const Ready& ready : next) {
    const PlanStep& s = plan_->steps[static_cast<size_t>(ready.step)];
    if (s.blocks && !ready.dead) {
      schedule(ReadyList{ready}, /*blocking=*/true);
    } else if (is_whole_loop(ready)) {
      loops.push_back(ready);
    } else if (todo.empty() || is_cheap(ready) || step_->max_threads <= 1) {
      todo.push_back(ready);
    } else {
      schedule(ReadyList{ready}, /*blocking=*/false);
    }
  }
  // A loop may take long: what else is ready comes first, or goes on elsewhere.
  for (const Ready& loop : loops) {
    if (todo.empty() || step_->max_threads <= 1) {
      todo.insert(todo.begin(), loop);
    } else {
      schedule(ReadyList{loop}, /*blocking=*/false);
    }
  }
  if (todo.size() >= kShareAt && step_->pool->size() > 1 && step_->max_threads > 1) {
    auto middle = todo.begin() + static_cast<std::ptrdiff_t>(todo.size() / 2);
    schedule(ReadyList(todo.begin(), middle), /*blocking=*/false);
    todo.erase(todo.begin(), middle);
  }
}

bool ParallelRun::is_cheap(const Ready& ready) const {
  return ready.dead ||
         plan_->step_ns[static_cast<size_t>(ready.step)].load(std::memory_order_relaxed) < kCheapNs;
}

void ParallelRun::schedule(ReadyList list, bool blocking) {
  Ref<ParallelRun> self(this);
  auto task = [self, list = std::move(list)]() mutable { self->run_from(std::move(list)); };
  if (blocking) {
    step_->pool->schedule_blocking(std::move(task));
  } else {
    step_->schedule(std::move(task));
  }
}

void ParallelRun::finish_steps(int64_t count) {
  if (in_flight_.fetch_sub(count, std::memory_order_acq_rel) != count) return;
  // The frames of a run that failed are left where they stood.
  free_frames(root_iteration_);
  check_fetches();
  if (!fed_later_ && !step_->stopped()) timer_.stop(plan_->parallel_ns);
  if (plan_->enqueues) return end_in_order();
  step_->end_part();
}

void ParallelRun::check_fetches() {
  if (on_fetch) return;
  for (int32_t s : plan_->fetches) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(s)];
    if (step_->fetches[static_cast<size_t>(step.position)].valid()) continue;
    return step_->fail_at_end(
        annotate_step(*plan_, static_cast<size_t>(s),
                      invalid_argument("no value reached the fetched tensor in this run")));
  }
}

void ParallelRun::free_frames(Iteration* first) {
  if (!plan_->has_frames) return;
  std::vector<Iteration*> todo = {first};
  while (!todo.empty()) {
    Iteration* iteration = todo.back();
    todo.pop_back();
    for (Frame*& child : iteration->children) {
      if (child == nullptr) continue;
      {
        MutexLock lock(child->mu);
        todo.insert(todo.end(), child->live.begin(), child->live.end());
      }
      dropped_.push_back(child);
      child = nullptr;
    }
    if (iteration != root_iteration_) {
      plan_->scratch->give_back(iteration->frame->static_id, iteration);
    }
  }
  for (Frame* frame : dropped_) delete_frame(frame);
  dropped_.clear();
}

bool ParallelRun::execute(const Ready& ready, ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
  Iteration* iteration = ready.iteration;
  if (step_->stopped()) return true;
  if (ready.dead && !step.runs_when_dead) {
    // A Merge may be dead before all its inputs have come.
    if (step.kind != StepKind::kMerge) release_inputs(step, iteration);
    deliver_dead(ready.step, iteration, next);
    return true;
  }
  Status status;
  switch (step.kind) {
    case StepKind::kKernel:
      if (step.updates && updates_ != nullptr && updates_->made(change_of(ready))) {
        if (step.num_outputs > 0) slot(iteration, step.first_output) = input(step, iteration, 0);
        break;
      }
      if (step.async) return start_async(ready, next);
      status = run_kernel(ready);
      break;
    case StepKind::kFeed:
      status = run_feed(step, iteration);
      break;
    case StepKind::kFetch:
      status = run_fetch(step, iteration);
      break;
    case StepKind::kForward:
      if (iteration->frame->gathers && step.control_flow == ControlFlow::kLoopCond) {
        run_loop(ready, next);
        return true;
      }
      status = run_forward(ready, next);
      if (status.ok()) return true;
      break;
    case StepKind::kSwitch:
      status = run_switch(step, iteration);
      break;
    case StepKind::kMerge:
      status = run_merge(step, iteration);
      break;
    case StepKind::kNothing:
    case StepKind::kLoop:  // these are of the straight form
    case StepKind::kGuard:
      break;
  }
  complete(ready, std::move(status), next);
  return true;
}

std::string ParallelRun::change_of(const Ready& ready) const {
  const std::string& node = plan_->steps[static_cast<size_t>(ready.step)].node->name;
  const Iteration& where = *ready.iteration;
  if (where.frame == &root_) return node;
  // As keys of tensors: the same whenever the run is tried.
  return str_cat(node, ";", where.frame->id, ";", where.number);
}

void ParallelRun::complete(const Ready& ready, Status status, ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
  if (!status.ok()) [[unlikely]] {
    std::vector<Value*> inputs;
    for (int i = 0; i < step.num_inputs && step.kind == StepKind::kKernel; ++i) {
      inputs.push_back(&input(step, ready.iteration, i));
    }
    return step_->fail(
        annotate_step(*plan_, static_cast<size_t>(ready.step), with_inputs(status, inputs)));
  }
  if (step.updates && updates_ != nullptr) updates_->note(change_of(ready));
  if (step.kind != StepKind::kMerge) release_inputs(step, ready.iteration);
  size_t before = next.size();
  arrive(step, ready.iteration, /*node_dead=*/false, next);
  account(ready.iteration, static_cast<int64_t>(next.size() - before) - 1, next);
}

uint64_t ParallelRun::gather_inputs(const PlanStep& step, Iteration* iteration, Value** inputs) {
  uint64_t movable = 0;
  for (int i = 0; i < step.num_inputs; ++i) {
    inputs[i] = &input(step, iteration, i);
    if (i < 64 && last_user(step, iteration, i)) movable |= uint64_t{1} << i;
  }
  return movable;
}

KernelContext::Args ParallelRun::kernel_args(const Ready& ready, Value* const* inputs,
                                             uint64_t movable) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
  return {.node = step.node,
          .step = step_.get(),
          .device = plan_->device.get(),
          .inputs = inputs,
          .outputs = ready.iteration->slots.get() + step.first_output,
          .num_inputs = step.num_inputs,
          .num_outputs = step.num_outputs,
          .movable = movable,
          .frame = ready.iteration->frame->id,
          .iteration = static_cast<uint64_t>(ready.iteration->number),
          .input_dead = ready.dead,
          .host_outputs = step.host_outputs,
          .output_types = step.output_types};
}

Status ParallelRun::run_kernel(const Ready& ready) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
  constexpr int kFew = 8;
  Value* few[kFew];
  std::vector<Value*> many;
  std::vector<Value> copies;
  Value** inputs = few;
  if (step.num_inputs > kFew) {
    many.resize(static_cast<size_t>(step.num_inputs));
    inputs = many.data();
  }
  uint64_t movable = gather_inputs(step, ready.iteration, inputs);
  if (step.needs.any()) {
    copies.resize(static_cast<size_t>(step.num_inputs));
    MR_TRY(prepare_inputs(*step.node, step.needs, inputs, copies.data()));
  }
  KernelContext ctx(kernel_args(ready, inputs, movable));
  StepTimer timer(*plan_, ready.step, measured_, step_->trace.get(),
                  {inputs, static_cast<size_t>(step.num_inputs)}, ready.scheduled_ns);
  const WaitNote note(step.blocks ? step_->rendezvous.get() : nullptr, step);
  MR_TRY(step.kernel->compute(ctx));
  const Value* outputs = ready.iteration->slots.get() + step.first_output;
  timer.stop(outputs);
  return check_outputs(step.output_types, step.num_outputs, outputs);
}

Status ParallelRun::run_feed(const PlanStep& step, Iteration* iteration) {
  Value& out = slot(iteration, step.first_output);
  if (out.empty()) out = Value::of(step_->feeds[static_cast<size_t>(step.position)]);
  return check_outputs(step.output_types, step.num_outputs, &out);
}

Status ParallelRun::run_fetch(const PlanStep& step, Iteration* iteration) {
  Value& in = input(step, iteration, 0);
  MR_TRY_ASSIGN(Tensor value, fetch_value(in, last_user(step, iteration, 0)));
  if (on_fetch) {
    on_fetch(step.position, std::move(value));
  } else {
    step_->fetches[static_cast<size_t>(step.position)] = std::move(value);
  }
  return ok_status();
}

Status ParallelRun::take(const PlanStep& step, Iteration* iteration, int i, Value& out) {
  const bool by_value = !is_ref(step.node->input_types[static_cast<size_t>(i)]);
  return hand_on(input(step, iteration, i), by_value, last_user(step, iteration, i), out);
}

Status ParallelRun::run_switch(const PlanStep& step, Iteration* iteration) {
  MR_TRY_ASSIGN(const int taken, switch_output(input(step, iteration, 1), step.num_outputs));
  MR_TRY(take(step, iteration, 0, slot(iteration, step.first_output + taken)));
  for (int i = 0; i < step.num_outputs; ++i) {
    if (i != taken) slot(iteration, step.first_output + i).set_dead();
  }
  return ok_status();
}

Status ParallelRun::run_merge(const PlanStep& step, Iteration* iteration) {
  size_t index = static_cast<size_t>(step.index_in_frame);
  int32_t chosen = iteration->chosen[index].load(std::memory_order_relaxed);
  MR_TRY(take(step, iteration, chosen, slot(iteration, step.first_output)));
  release_input(step, iteration, chosen);
  // The number of the input that came is seldom asked for.
  size_t number = static_cast<size_t>(step.first_output) + 1;
  if (plan_->frames[static_cast<size_t>(step.frame)].initial_uses[number] > 0) {
    iteration->slots[number] = Value::of(Tensor::scalar<int32_t>(chosen));
  }
  return ok_status();
}

Status ParallelRun::run_forward(const Ready& ready, ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
  Iteration* iteration = ready.iteration;
  // Straight from slot to slot when nobody else wants the value.
  Value copy;
  Value* value = &input(step, iteration, 0);
  if (value->is_ref() || !last_user(step, iteration, 0)) {
    MR_TRY(take(step, iteration, 0, copy));
    value = &copy;
  }
  int64_t started = deliver(ready.step, iteration, std::move(*value), next);
  release_inputs(step, iteration);
  account(iteration, started - 1, next);
  return ok_status();
}

// What an asynchronous step needs until its kernel calls back.
struct ParallelRun::AsyncStep {
  AsyncStep(ParallelRun* run, const Ready& ready)
      : run(run),
        ready(ready),
        timer(*run->plan_, ready.step, run->measured_, run->step_->trace.get(), {},
              ready.scheduled_ns),
        note(waits_of(*run, ready), run->plan_->steps[static_cast<size_t>(ready.step)]) {}
  // Receives are the rendezvous's own waits; they are among those that run when dead.
  static Rendezvous* waits_of(const ParallelRun& run, const Ready& ready) {
    const bool receives = run.plan_->steps[static_cast<size_t>(ready.step)].runs_when_dead;
    return receives ? nullptr : run.step_->rendezvous.get();
  }
  Ref<ParallelRun> run;
  Ready ready;
  StepTimer timer;
  WaitNote note;
  std::vector<Value*> inputs;
  std::vector<Value> copies;
  alignas(KernelContext) unsigned char context[sizeof(KernelContext)];
  Status status;
  // Whoever comes second, the starter or the kernel's callback, goes on.
  std::atomic<bool> met{false};
  KernelContext* ctx() { return reinterpret_cast<KernelContext*>(context); }
};

bool ParallelRun::start_async(const Ready& ready, ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
  AsyncStep* state = new AsyncStep(this, ready);
  state->inputs.resize(static_cast<size_t>(step.num_inputs));
  uint64_t movable = gather_inputs(step, ready.iteration, state->inputs.data());
  if (step.needs.any()) {
    state->copies.resize(static_cast<size_t>(step.num_inputs));
    Status status =
        prepare_inputs(*step.node, step.needs, state->inputs.data(), state->copies.data());
    if (!status.ok()) {
      delete state;
      complete(ready, std::move(status), next);
      return true;
    }
  }
  new (state->context) KernelContext(kernel_args(ready, state->inputs.data(), movable));
  auto* kernel = static_cast<const AsyncKernel*>(step.kernel);
  kernel->compute_async(*state->ctx(), [state](Status status) {
    state->status = std::move(status);
    if (!state->met.exchange(true, std::memory_order_acq_rel)) return;
    // Called from inside some other kernel: go on from a fresh stack.
    ParallelRun* run = state->run.get();
    UniqueFunction<void()> here = [state, step = run->step_] {
      step->run_here([&] { state->run->go_on(state); });
    };
    if (run->quick_ && SpareThread::take(here)) return;
    run->step_->schedule([state] { state->run->go_on(state); });
  });
  if (!state->met.exchange(true, std::memory_order_acq_rel)) return false;
  end_async(state, next);
  return true;
}

void ParallelRun::go_on(AsyncStep* state) {
  const Ref<ParallelRun> self(this);  // the step may hold the last but this
  ReadyList next;
  end_async(state, next);
  if (count_finished(next)) begin(std::move(next));
}

void ParallelRun::end_async(AsyncStep* state, ReadyList& next) {
  const PlanStep& step = plan_->steps[static_cast<size_t>(state->ready.step)];
  Status status = std::move(state->status);
  const Value* outputs = state->ready.iteration->slots.get() + step.first_output;
  state->timer.stop(outputs);
  if (status.ok()) status = check_outputs(step.output_types, step.num_outputs, outputs);
  Ready ready = state->ready;
  state->ctx()->~KernelContext();
  delete state;
  complete(ready, std::move(status), next);
}

void run_parallel(Ref<Plan> plan, Ref<Step> step) {
  Ref<ParallelRun> run = make_ref<ParallelRun>(std::move(plan), std::move(step));
  run->start(/*feeds_later=*/false);
}

}  // namespace millrace
