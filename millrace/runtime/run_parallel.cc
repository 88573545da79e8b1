#include <deque>
#include <vector>

#include "millrace/base/hash.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/runtime/executor.h"
#include "millrace/runtime/pending.h"
#include "millrace/runtime/scratch.h"
#include "millrace/runtime/step_runner.h"

namespace millrace {

// One execution of a loop: all its iterations. Made by the first Enter that reaches it.
struct Frame {
  const PlanFrame* desc = nullptr;
  int32_t static_id = 0;
  Frame* parent = nullptr;
  Iteration* parent_iteration = nullptr;
  uint64_t id = 0;  // the same in every process that runs a part of the loop

  struct Parked {
    int32_t step;
    Value value;
  };
  Mutex mu;
  std::deque<Iteration*> live MR_GUARDED_BY(mu);  // oldest first
  int64_t newest MR_GUARDED_BY(mu) = -1;
  std::vector<Parked> constants MR_GUARDED_BY(mu);    // of constant Enters, for iterations to come
  std::vector<Parked> parked MR_GUARDED_BY(mu);       // for iteration newest + 1, which must wait
  std::vector<int32_t> dead_exits MR_GUARDED_BY(mu);  // of iteration `newest`
};

namespace {

// Steps cheaper than this run where they became ready; a hand-over costs about as much.
constexpr uint32_t kCheapNs = 3000;
// A thread with this many ready steps gives half of them away.
constexpr size_t kShareAt = 64;

struct Ready {
  int32_t step;
  bool dead;
  Iteration* iteration;
  int64_t scheduled_ns = 0;  // when traced
};
using ReadyList = std::vector<Ready>;

class ParallelRun : public RefCounted {
 public:
  ParallelRun(Ref<Plan> plan, const ExecuteArgs& args, UniqueFunction<void(Status)> done)
      : plan_(std::move(plan)), args_(args), step_(args.step), done_(std::move(done)) {
    step_.device = plan_->device.get();
    root_.desc = &plan_->frames[0];
    root_iteration_ = plan_->scratch->take_iteration(0);
    root_iteration_->frame = &root_;
    measured_ = begin_run(*plan_);
  }

  // Called when a fetch has its value (or is dead: an invalid tensor), before done.
  UniqueFunction<void(int position, Tensor value)> on_fetch;

  // Starts all steps that wait for nothing. With `feeds_later`, feeds start with feed().
  void start(bool feeds_later) {
    Ref<ParallelRun> self(this);
    // One more than there are steps to start, so that the run cannot end before all have started.
    in_flight_.store(static_cast<int64_t>(plan_->roots.size() + plan_->feeds.size()) + 1);
    ReadyList ready, todo;
    for (int32_t s : plan_->roots) ready.push_back({s, false, root_iteration_});
    if (!feeds_later) {
      for (int32_t s : plan_->feeds) ready.push_back({s, false, root_iteration_});
    }
    hand_out(ready, todo);
    run_from(std::move(todo));
    finish_steps(1);
  }

  // Runs feed step `step` with this value.
  void feed(int32_t step, Tensor value) {
    const PlanStep& s = plan_->steps[static_cast<size_t>(step)];
    Value& slot = root_iteration_->slots[static_cast<size_t>(s.first_output)];
    slot = Value::of(std::move(value));
    run_from({{step, false, root_iteration_}});
  }
  // Feeds that will never come: their steps are over.
  void abandon_feeds(int64_t count) {
    if (count > 0) finish_steps(count);
  }

  void fail(const Status& status) {
    {
      MutexLock lock(mu_);
      if (!status_.ok()) return;
      status_ = status;
    }
    failed_.store(true, std::memory_order_release);
    if (step_.rendezvous != nullptr) step_.rendezvous->abort(status);
    if (step_.cancel != nullptr) step_.cancel->cancel(status);
  }

  const Plan& plan() const { return *plan_; }

 protected:
  ~ParallelRun() override { plan_->scratch->give_back(0, root_iteration_); }

 private:
  struct AsyncStep;

  bool stopped() {
    if (failed_.load(std::memory_order_acquire)) return true;
    if (step_.cancel == nullptr || !step_.cancel->cancelled()) [[likely]]
      return false;
    fail(step_.cancel->status());
    return true;
  }

  // Runs steps until nothing more is ready here, giving some away on the way.
  void run_from(ReadyList todo) {
    ReadyList next;
    while (!todo.empty()) {
      Ready ready = todo.back();
      todo.pop_back();
      next.clear();
      if (!execute(ready, next)) continue;  // goes on elsewhere
      finish(next, todo);
    }
  }

  // Accounts for one finished step that made `next` ready, and hands those out.
  void finish(ReadyList& next, ReadyList& todo) {
    if (next.empty()) return finish_steps(1);
    if (next.size() > 1) {
      in_flight_.fetch_add(static_cast<int64_t>(next.size()) - 1, std::memory_order_relaxed);
    }
    hand_out(next, todo);
  }

  // Keeps what is cheap and one that is not for this thread; the pool gets the rest.
  void hand_out(ReadyList& next, ReadyList& todo) {
    if (step_.trace != nullptr) {
      for (Ready& ready : next) ready.scheduled_ns = monotonic_nanos();
    }
    for (const Ready& ready : next) {
      const PlanStep& s = plan_->steps[static_cast<size_t>(ready.step)];
      if (s.blocks && !ready.dead) {
        schedule(ReadyList{ready}, /*blocking=*/true);
      } else if (todo.empty() || is_cheap(ready) || step_.max_threads <= 1) {
        todo.push_back(ready);
      } else {
        schedule(ReadyList{ready}, /*blocking=*/false);
      }
    }
    if (todo.size() >= kShareAt && step_.pool->size() > 1 && step_.max_threads > 1) {
      auto middle = todo.begin() + static_cast<std::ptrdiff_t>(todo.size() / 2);
      schedule(ReadyList(todo.begin(), middle), /*blocking=*/false);
      todo.erase(todo.begin(), middle);
    }
  }

  bool is_cheap(const Ready& ready) const {
    return ready.dead || plan_->step_ns[static_cast<size_t>(ready.step)].load(
                             std::memory_order_relaxed) < kCheapNs;
  }

  void schedule(ReadyList list, bool blocking) {
    Ref<ParallelRun> self(this);
    auto task = [self, list = std::move(list)]() mutable { self->run_from(std::move(list)); };
    if (blocking) {
      step_.pool->schedule_blocking(std::move(task));
    } else {
      step_.pool->schedule(std::move(task));
    }
  }

  void finish_steps(int64_t count) {
    if (in_flight_.fetch_sub(count, std::memory_order_acq_rel) != count) return;
    // The frames of a run that failed are left where they stood.
    free_frames(root_iteration_);
    Status status;
    {
      MutexLock lock(mu_);
      status = status_.ok() ? dead_fetch_ : status_;
    }
    UniqueFunction<void(Status)> done = std::move(done_);
    done(std::move(status));
  }

  void free_frames(Iteration* first) {
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
    for (Frame* frame : dropped_) delete frame;
    dropped_.clear();
  }

  // Runs one step. False when it goes on asynchronously.
  bool execute(const Ready& ready, ReadyList& next) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
    Iteration* iteration = ready.iteration;
    if (stopped()) return true;
    if (ready.dead && !step.runs_when_dead) {
      // A Merge may be dead before all its inputs have come.
      if (step.kind != StepKind::kMerge) release_inputs(step, iteration);
      deliver_dead(ready.step, iteration, next);
      return true;
    }
    Status status;
    switch (step.kind) {
      case StepKind::kKernel:
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
        break;
    }
    complete(ready, std::move(status), next);
    return true;
  }

  // The end of a step whose outputs are in its own iteration.
  void complete(const Ready& ready, Status status, ReadyList& next) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
    if (!status.ok()) [[unlikely]] {
      return fail(
          annotate_error(status, *step.node, plan_->origins[static_cast<size_t>(ready.step)]));
    }
    if (step.kind != StepKind::kMerge) release_inputs(step, ready.iteration);
    size_t before = next.size();
    arrive(step, ready.iteration, /*node_dead=*/false, next);
    account(ready.iteration, static_cast<int64_t>(next.size() - before) - 1, next);
  }

  // ---- kinds of steps

  Value& slot(Iteration* iteration, int32_t index) {
    return iteration->slots[static_cast<size_t>(index)];
  }
  int32_t input_slot(const PlanStep& step, int i) const {
    return plan_->inputs[static_cast<size_t>(step.first_input + i)];
  }
  Value& input(const PlanStep& step, Iteration* iteration, int i) {
    return slot(iteration, input_slot(step, i));
  }
  bool last_user(const PlanStep& step, Iteration* iteration, int i) {
    return iteration->uses[static_cast<size_t>(input_slot(step, i))].load(
               std::memory_order_acquire) == 1;
  }

  void fill_args(const Ready& ready, Value** inputs, KernelContext::Args& a) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
    for (int i = 0; i < step.num_inputs; ++i) {
      inputs[i] = &input(step, ready.iteration, i);
      if (i < 64 && last_user(step, ready.iteration, i)) a.movable |= uint64_t{1} << i;
    }
    a.node = step.node;
    a.step = &step_;
    a.inputs = inputs;
    a.outputs = ready.iteration->slots.get() + step.first_output;
    a.num_inputs = step.num_inputs;
    a.num_outputs = step.num_outputs;
    a.frame = ready.iteration->frame->id;
    a.iteration = static_cast<uint64_t>(ready.iteration->number);
    a.input_dead = ready.dead;
  }

  Status run_kernel(const Ready& ready) {
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
    KernelContext::Args a;
    fill_args(ready, inputs, a);
    if (needs_preparation(step)) {
      copies.resize(static_cast<size_t>(step.num_inputs));
      MR_TRY(prepare_inputs(step, inputs, copies.data()));
    }
    KernelContext ctx(a);
    StepTimer timer(*plan_, ready.step, measured_, step_.trace, ready.scheduled_ns);
    MR_TRY(step.kernel->compute(ctx));
    timer.stop(a.outputs);
    return check_outputs(step, a.outputs);
  }

  Status run_feed(const PlanStep& step, Iteration* iteration) {
    Value& out = slot(iteration, step.first_output);
    if (out.empty()) out = Value::of(args_.feeds[static_cast<size_t>(step.position)]);
    return check_outputs(step, &out);
  }

  Status run_fetch(const PlanStep& step, Iteration* iteration) {
    Value& in = input(step, iteration, 0);
    MR_TRY_ASSIGN(Tensor value, fetch_value(in, last_user(step, iteration, 0)));
    if (on_fetch) {
      on_fetch(step.position, std::move(value));
    } else {
      args_.fetches[static_cast<size_t>(step.position)] = std::move(value);
    }
    return ok_status();
  }

  // The value of a forwarding step's input, moved when nobody else reads it.
  Status take(const PlanStep& step, Iteration* iteration, int i, Value& out) {
    Value& in = input(step, iteration, i);
    if (in.is_ref() && !is_ref(step.node->input_types[static_cast<size_t>(i)])) {
      return read_reference(in, out);
    }
    if (last_user(step, iteration, i)) {
      out = std::move(in);
      in.clear();
    } else {
      out = in;
    }
    return ok_status();
  }

  Status run_switch(const PlanStep& step, Iteration* iteration) {
    const Tensor* predicate = &input(step, iteration, 1).tensor;
    Value read;
    if (input(step, iteration, 1).is_ref()) {
      MR_TRY(read_reference(input(step, iteration, 1), read));
      predicate = &read.tensor;
    }
    if (predicate->dtype() != DType::kBool || predicate->num_elements() != 1) {
      return invalid_argument("the predicate must be a bool scalar, got ", predicate->dtype(), " ",
                              predicate->shape());
    }
    int taken = predicate->item<bool>() ? 1 : 0;
    MR_TRY(take(step, iteration, 0, slot(iteration, step.first_output + taken)));
    slot(iteration, step.first_output + 1 - taken).set_dead();
    return ok_status();
  }

  Status run_merge(const PlanStep& step, Iteration* iteration) {
    size_t index = static_cast<size_t>(step.index_in_frame);
    int32_t chosen = iteration->chosen[index].load(std::memory_order_relaxed);
    MR_TRY(take(step, iteration, chosen, slot(iteration, step.first_output)));
    release_input(step, iteration, chosen);
    if (step.num_outputs > 1) {
      slot(iteration, step.first_output + 1) = Value::of(Tensor::scalar<int32_t>(chosen));
    }
    return ok_status();
  }

  // LoopCond stays in its iteration; the others carry a value to another one.
  Status run_forward(const Ready& ready, ReadyList& next) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
    Iteration* iteration = ready.iteration;
    Value value;
    MR_TRY(take(step, iteration, 0, value));
    release_inputs(step, iteration);
    deliver(ready.step, iteration, std::move(value), next);
    return ok_status();
  }

  // ---- asynchronous steps

  struct AsyncStep {
    AsyncStep(ParallelRun* run, const Ready& ready)
        : run(run),
          ready(ready),
          timer(*run->plan_, ready.step, run->measured_, run->step_.trace, ready.scheduled_ns) {}
    Ref<ParallelRun> run;
    Ready ready;
    StepTimer timer;
    std::vector<Value*> inputs;
    std::vector<Value> copies;
    alignas(KernelContext) unsigned char context[sizeof(KernelContext)];
    Status status;
    // Whoever comes second, the starter or the kernel's callback, goes on.
    std::atomic<bool> met{false};
    KernelContext* ctx() { return reinterpret_cast<KernelContext*>(context); }
  };

  bool start_async(const Ready& ready, ReadyList& next) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(ready.step)];
    AsyncStep* state = new AsyncStep(this, ready);
    state->inputs.resize(static_cast<size_t>(step.num_inputs));
    KernelContext::Args a;
    fill_args(ready, state->inputs.data(), a);
    if (needs_preparation(step)) {
      state->copies.resize(static_cast<size_t>(step.num_inputs));
      Status status = prepare_inputs(step, state->inputs.data(), state->copies.data());
      if (!status.ok()) {
        delete state;
        complete(ready, std::move(status), next);
        return true;
      }
    }
    new (state->context) KernelContext(a);
    auto* kernel = static_cast<const AsyncKernel*>(step.kernel);
    kernel->compute_async(*state->ctx(), [state](Status status) {
      state->status = std::move(status);
      if (!state->met.exchange(true, std::memory_order_acq_rel)) return;
      // Called from inside some other kernel: go on from a fresh stack.
      ParallelRun* run = state->run.get();
      run->step_.pool->schedule([state] {
        Ref<ParallelRun> self = state->run;
        ReadyList next, todo;
        self->end_async(state, next);
        self->finish(next, todo);
        self->run_from(std::move(todo));
      });
    });
    if (!state->met.exchange(true, std::memory_order_acq_rel)) return false;
    end_async(state, next);
    return true;
  }

  void end_async(AsyncStep* state, ReadyList& next) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(state->ready.step)];
    Status status = std::move(state->status);
    const Value* outputs = state->ready.iteration->slots.get() + step.first_output;
    state->timer.stop(outputs);
    if (status.ok()) status = check_outputs(step, outputs);
    Ready ready = state->ready;
    state->ctx()->~KernelContext();
    delete state;
    complete(ready, std::move(status), next);
  }

  // ---- values and who waits for them

  void release_input(const PlanStep& step, Iteration* iteration, int i) {
    size_t index = static_cast<size_t>(input_slot(step, i));
    std::atomic<int32_t>& uses = iteration->uses[index];
    if (uses.load(std::memory_order_acquire) == 1 ||
        uses.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      iteration->slots[index].clear();
    }
  }
  void release_inputs(const PlanStep& step, Iteration* iteration) {
    for (int i = 0; i < step.num_inputs; ++i) release_input(step, iteration, i);
  }

  // Tells the consumers of `step`, whose outputs are in `iteration`, that its values are there.
  void arrive(const PlanStep& step, Iteration* iteration, bool node_dead, ReadyList& next) {
    for (int k = 0; k < step.num_edges; ++k) {
      const PlanEdge& edge = plan_->edges[static_cast<size_t>(step.first_edge + k)];
      const PlanStep& to = plan_->steps[static_cast<size_t>(edge.step)];
      bool dead = node_dead;
      if (edge.input >= 0) dead = input(to, iteration, edge.input).dead();
      std::atomic<uint64_t>& pending = iteration->pending[static_cast<size_t>(to.index_in_frame)];
      if (to.kind == StepKind::kMerge) {
        arrive_at_merge(step, edge, to, iteration, pending, dead, next);
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
      size_t index = static_cast<size_t>(step.first_output + i);
      if (plan_->frames[static_cast<size_t>(step.output_frame)].initial_uses[index] == 0) {
        iteration->slots[index].clear();
      }
    }
  }

  void arrive_at_merge(const PlanStep& from, const PlanEdge& edge, const PlanStep& to,
                       Iteration* iteration, std::atomic<uint64_t>& pending, bool dead,
                       ReadyList& next) {
    uint64_t inputs = static_cast<uint64_t>(to.num_inputs);
    uint64_t delta = pending::kMergeControl;
    if (edge.input >= 0 && dead) {
      // A loop in a branch that was not taken has nothing else to wait for.
      delta = pending::merge_dead(from.control_flow == ControlFlow::kEnter ? inputs : 1);
    } else if (edge.input >= 0) {
      delta = pending::kMergeLive;
      iteration->chosen[static_cast<size_t>(to.index_in_frame)].store(edge.input,
                                                                      std::memory_order_relaxed);
    }
    uint64_t before = pending.fetch_add(delta, std::memory_order_acq_rel);
    uint64_t now = before + delta;
    if (pending::merge_num_live(now) > 1) {
      return fail(annotate_error(internal("two live inputs in one activation"), *to.node,
                                 plan_->origins[static_cast<size_t>(edge.step)]));
    }
    if (pending::merge_ready(now, inputs) && !pending::merge_ready(before, inputs)) {
      next.push_back({edge.step, pending::merge_num_live(now) == 0, iteration});
    }
  }

  // Adds `delta` to what is outstanding in an iteration; ends it at zero.
  void account(Iteration* iteration, int64_t delta, ReadyList& next) {
    if (iteration->frame == &root_) return;
    if (delta == 0) return;
    if (iteration->outstanding.fetch_add(delta, std::memory_order_acq_rel) + delta == 0) {
      end_iteration(iteration, next);
    }
  }

  // A dead step: all its outputs are dead.
  void deliver_dead(int32_t step_index, Iteration* iteration, ReadyList& next) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
    if (step.kind == StepKind::kFetch) {
      note_dead_fetch(step);
    } else if (step.control_flow == ControlFlow::kEnter) {
      Value dead;
      dead.set_dead();
      return deliver(step_index, iteration, std::move(dead), next);
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

  void note_dead_fetch(const PlanStep& step) {
    {
      MutexLock lock(mu_);
      if (dead_fetch_.ok()) {
        dead_fetch_ = invalid_argument("the tensor fetched at position ", step.position, " (",
                                       step.node->name,
                                       ") was not valid: it lies on a branch that was not taken");
      }
    }
    if (on_fetch) on_fetch(step.position, Tensor());
  }

  // Hands the value of a forwarding step to the iteration its output belongs to, and ends the step.
  void deliver(int32_t step_index, Iteration* iteration, Value value, ReadyList& next) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
    switch (step.control_flow) {
      case ControlFlow::kEnter:
        enter(step_index, iteration, std::move(value), next);
        break;
      case ControlFlow::kExit: {
        Iteration* parent = iteration->frame->parent_iteration;
        size_t before = next.size();
        put(step, parent, std::move(value), next);
        account(parent, static_cast<int64_t>(next.size() - before), next);
        break;
      }
      case ControlFlow::kNextIteration:
        next_iteration(step_index, iteration, std::move(value), next);
        break;
      default: {
        size_t before = next.size();
        put(step, iteration, std::move(value), next);
        return account(iteration, static_cast<int64_t>(next.size() - before) - 1, next);
      }
    }
    account(iteration, -1, next);
  }

  // Stores the value and tells the consumers; the caller accounts for what became ready.
  void put(const PlanStep& step, Iteration* iteration, Value value, ReadyList& next) {
    bool dead = value.dead();
    slot(iteration, step.first_output) = std::move(value);
    arrive(step, iteration, dead, next);
  }

  // ---- frames

  // The frame that `step` enters from `iteration`, made when this is the first to come.
  Frame* child_frame(const PlanStep& step, Iteration* iteration) {
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
    child->id = hash_combine(hash_combine(hash_bytes(desc.name), parent->id),
                             static_cast<uint64_t>(iteration->number));
    if (parent != &root_) iteration->outstanding.fetch_add(1, std::memory_order_relaxed);
    MutexLock child_lock(child->mu);
    Iteration* first = add_iteration(*child);
    first->outstanding.store(desc.num_enters, std::memory_order_relaxed);
    return child;
  }

  Iteration* add_iteration(Frame& frame) MR_REQUIRES(frame.mu) {
    Iteration* iteration = plan_->scratch->take_iteration(frame.static_id);
    iteration->frame = &frame;
    iteration->number = ++frame.newest;
    frame.live.push_back(iteration);
    frame.dead_exits.clear();
    return iteration;
  }

  void enter(int32_t step_index, Iteration* from, Value value, ReadyList& next) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
    Frame* frame = child_frame(step, from);
    Iteration* first = nullptr;
    int64_t started = 0;
    {
      MutexLock lock(frame->mu);
      first = frame->live.front();  // iteration 0 stays until every Enter has come
      if (step.constant_enter) {
        frame->constants.push_back({step_index, value});
        for (Iteration* other : frame->live) {
          if (other == first) continue;
          size_t before = next.size();
          put(step, other, value, next);
          other->outstanding.fetch_add(static_cast<int64_t>(next.size() - before),
                                       std::memory_order_relaxed);
        }
      }
      size_t before = next.size();
      put(step, first, std::move(value), next);
      started = static_cast<int64_t>(next.size() - before);
    }
    account(first, started - 1, next);
  }

  void next_iteration(int32_t step_index, Iteration* iteration, Value value, ReadyList& next) {
    const PlanStep& step = plan_->steps[static_cast<size_t>(step_index)];
    Frame* frame = iteration->frame;
    MutexLock lock(frame->mu);
    if (iteration->number == frame->newest) {
      if (static_cast<int64_t>(frame->live.size()) >= frame->desc->parallel_iterations) {
        frame->parked.push_back({step_index, std::move(value)});
        return;
      }
      Iteration* fresh = add_iteration(*frame);
      // Held by the iteration before it.
      fresh->outstanding.store(1, std::memory_order_relaxed);
      replay_constants(*frame, fresh, next);
    }
    size_t offset = static_cast<size_t>(iteration->number + 1 - frame->live.front()->number);
    Iteration* target = frame->live[offset];
    size_t before = next.size();
    put(step, target, std::move(value), next);
    target->outstanding.fetch_add(static_cast<int64_t>(next.size() - before),
                                  std::memory_order_relaxed);
  }

  void replay_constants(Frame& frame, Iteration* iteration, ReadyList& next) MR_REQUIRES(frame.mu) {
    size_t before = next.size();
    for (const Frame::Parked& constant : frame.constants) {
      put(plan_->steps[static_cast<size_t>(constant.step)], iteration, constant.value, next);
    }
    iteration->outstanding.fetch_add(static_cast<int64_t>(next.size() - before),
                                     std::memory_order_relaxed);
  }

  // Ends an iteration with nothing outstanding, and whatever ends with it.
  void end_iteration(Iteration* iteration, ReadyList& next) {
    while (iteration != nullptr) {
      Frame* frame = iteration->frame;
      Iteration* over = nullptr;
      bool frame_over = false;
      {
        MutexLock lock(frame->mu);
        frame->live.pop_front();
        plan_->scratch->give_back(frame->static_id, iteration);
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

  // Starts the iteration that waited for room, held by the iteration before it: or, when that is
  // the one that ends, by the caller.
  void start_parked(Frame& frame, ReadyList& next) MR_REQUIRES(frame.mu) {
    std::vector<Frame::Parked> parked = std::move(frame.parked);
    frame.parked.clear();
    Iteration* fresh = add_iteration(frame);
    fresh->outstanding.store(1, std::memory_order_relaxed);
    replay_constants(frame, fresh, next);
    size_t before = next.size();
    for (Frame::Parked& p : parked) {
      put(plan_->steps[static_cast<size_t>(p.step)], fresh, std::move(p.value), next);
    }
    fresh->outstanding.fetch_add(static_cast<int64_t>(next.size() - before),
                                 std::memory_order_relaxed);
  }

  // Sends the exits that stayed dead and removes the frame. Returns the parent's iteration when
  // that is over too.
  Iteration* end_frame(Frame* frame, ReadyList& next) {
    Iteration* parent = frame->parent_iteration;
    std::vector<int32_t> exits;
    {
      MutexLock lock(frame->mu);
      exits = std::move(frame->dead_exits);
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
    delete frame;
    if (parent->frame == &root_) return nullptr;
    int64_t delta = started - 1;
    bool over = parent->outstanding.fetch_add(delta, std::memory_order_acq_rel) + delta == 0;
    return over ? parent : nullptr;
  }

  Ref<Plan> plan_;
  const ExecuteArgs args_;
  StepContext step_;
  bool measured_ = false;
  Frame root_;
  Iteration* root_iteration_;
  // Steps that are ready or running, anywhere in the run. At zero the run is over.
  std::atomic<int64_t> in_flight_{0};
  std::atomic<bool> failed_{false};
  std::vector<Frame*> dropped_;
  Mutex mu_;
  Status status_ MR_GUARDED_BY(mu_);
  Status dead_fetch_ MR_GUARDED_BY(mu_);
  UniqueFunction<void(Status)> done_;
};

// Several plans of one step, fed and fetched from outside.
class PartialRunImpl : public PartialRun {
 public:
  PartialRunImpl(std::vector<Ref<Plan>> plans, const ExecuteArgs& args,
                 UniqueFunction<void(Status)> on_end)
      : fetched_(args.fetches.size()),
        has_(args.fetches.size()),
        on_end_(std::move(on_end)),
        running_(static_cast<int>(plans.size())),
        cancel_(args.step.cancel) {
    for (Ref<Plan>& plan : plans) {
      Ref<PartialRunImpl> self(this);
      Ref<ParallelRun> run =
          make_ref<ParallelRun>(plan, args, [self](Status status) { self->ended(status); });
      run->on_fetch = [this](int position, Tensor value) { set_fetch(position, std::move(value)); };
      for (int32_t step : plan->feeds) {
        int position = plan->steps[static_cast<size_t>(step)].position;
        if (position >= static_cast<int>(feeds_.size()))
          feeds_.resize(static_cast<size_t>(position) + 1);
        feeds_[static_cast<size_t>(position)].push_back({run, step});
      }
      runs_.push_back({run, static_cast<int64_t>(plan->feeds.size())});
    }
  }

  void start() {
    for (RunState& r : runs_) r.run->start(/*feeds_later=*/true);
    if (cancel_ != nullptr) {
      // Feeds that have not come keep a run alive; a cancelled one does not wait for them.
      Ref<PartialRunImpl> self(this);
      if (cancel_->on_cancel([self] { self->abandon(); }) == 0) abandon();
    }
  }

  Status feed(int position, Tensor value) override {
    std::vector<Target> targets;
    {
      MutexLock lock(mu_);
      if (!status_.ok()) return status_;
      size_t p = static_cast<size_t>(position);
      if (p >= feeds_.size()) return ok_status();  // no plan needs it
      if (feeds_[p].empty() && fed_.size() > p && fed_[p]) {
        return invalid_argument("feed ", position, " of this partial run was fed already");
      }
      if (fed_.size() <= p) fed_.resize(p + 1);
      fed_[p] = true;
      targets = std::move(feeds_[p]);
      feeds_[p].clear();
      for (Target& t : targets) {
        for (RunState& r : runs_) r.unfed -= r.run == t.run ? 1 : 0;
      }
    }
    for (Target& t : targets) t.run->feed(t.step, value);
    return ok_status();
  }

  Result<Tensor> fetch(int position, Deadline deadline) override {
    size_t p = static_cast<size_t>(position);
    MutexLock lock(mu_);
    while (!has_[p]) {
      if (!status_.ok()) return status_;
      if (running_ == 0) return internal("fetch ", position, " was never computed");
      if (!changed_.wait_until(mu_, deadline)) {
        return deadline_exceeded("waited in vain for fetch ", position, " of a partial run");
      }
    }
    if (!fetched_[p].valid()) {
      return invalid_argument("the tensor fetched at position ", position,
                              " was not valid: it lies on a branch that was not taken");
    }
    return fetched_[p];
  }

 private:
  struct Target {
    Ref<ParallelRun> run;
    int32_t step;
  };
  struct RunState {
    Ref<ParallelRun> run;
    int64_t unfed;
  };

  void set_fetch(int position, Tensor value) {
    MutexLock lock(mu_);
    fetched_[static_cast<size_t>(position)] = std::move(value);
    has_[static_cast<size_t>(position)] = true;
    changed_.notify_all();
  }

  void abandon() {
    std::vector<RunState> runs;
    {
      MutexLock lock(mu_);
      if (status_.ok()) status_ = cancel_->status();
      for (RunState& r : runs_) {
        runs.push_back(r);
        r.unfed = 0;
      }
      feeds_.assign(feeds_.size(), {});
      changed_.notify_all();
    }
    for (RunState& r : runs) {
      r.run->fail(cancel_->status());
      r.run->abandon_feeds(r.unfed);
    }
  }

  void ended(const Status& status) {
    UniqueFunction<void(Status)> on_end;
    Status final_status;
    {
      MutexLock lock(mu_);
      if (status_.ok() && !status.ok()) status_ = status;
      changed_.notify_all();
      if (--running_ > 0) return;
      final_status = status_;
      on_end = std::move(on_end_);
      runs_.clear();
    }
    if (on_end) on_end(final_status);
  }

  Mutex mu_;
  CondVar changed_;
  Status status_ MR_GUARDED_BY(mu_);
  std::vector<std::vector<Target>> feeds_
      MR_GUARDED_BY(mu_);  // by position: who still waits for it
  std::vector<bool> fed_ MR_GUARDED_BY(mu_);
  std::vector<RunState> runs_ MR_GUARDED_BY(mu_);
  std::vector<Tensor> fetched_ MR_GUARDED_BY(mu_);
  std::vector<bool> has_ MR_GUARDED_BY(mu_);
  UniqueFunction<void(Status)> on_end_ MR_GUARDED_BY(mu_);
  int running_ MR_GUARDED_BY(mu_);
  CancellationToken* cancel_;
};

}  // namespace

void run_parallel(Ref<Plan> plan, const ExecuteArgs& args, UniqueFunction<void(Status)> done) {
  Ref<ParallelRun> run = make_ref<ParallelRun>(std::move(plan), args, std::move(done));
  run->start(/*feeds_later=*/false);
}

Ref<PartialRun> PartialRun::start(std::vector<Ref<Plan>> plans, const ExecuteArgs& args,
                                  UniqueFunction<void(Status)> on_end) {
  Ref<PartialRunImpl> run = make_ref<PartialRunImpl>(std::move(plans), args, std::move(on_end));
  run->start();
  return run;
}

}  // namespace millrace
