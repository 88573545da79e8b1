#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/kernel/update_log.h"
#include "millrace/runtime/executor.h"
#include "millrace/runtime/scratch.h"
#include "millrace/runtime/step_runner.h"

// The inside of the parallel gear, shared by run_parallel.cc, parallel_frames.cc and
// partial_run.cc.

namespace millrace {

// One execution of a loop: all its iterations. Made by the first Enter that reaches it.
struct Frame {
  const PlanFrame* desc = nullptr;
  int32_t static_id = 0;
  Frame* parent = nullptr;
  Iteration* parent_iteration = nullptr;
  uint64_t id = 0;  // the same in every process that runs a part of the loop
  // The loop runs as a whole, by its LoopCond, once all of its inputs are there and live: until
  // then they wait in iteration 0, and nobody else is told.
  bool gathers = false;

  struct Parked {
    int32_t step;
    Value value;
  };
  Mutex mu;
  std::deque<Iteration*> live MR_GUARDED_BY(mu);    // oldest first
  std::vector<Iteration*> spare MR_GUARDED_BY(mu);  // over and reset, for iterations to come
  int64_t newest MR_GUARDED_BY(mu) = -1;
  std::vector<Parked> constants MR_GUARDED_BY(mu);    // of constant Enters, for iterations to come
  std::vector<Parked> parked MR_GUARDED_BY(mu);       // for iteration newest + 1, which must wait
  std::vector<int32_t> dead_exits MR_GUARDED_BY(mu);  // of iteration `newest`
  std::vector<int32_t> live_exits MR_GUARDED_BY(mu);  // that have left the loop
  // Where it gathers: how many inputs have come, and whether one of them is dead.
  int32_t entered MR_GUARDED_BY(mu) = 0;
  bool entered_dead MR_GUARDED_BY(mu) = false;
};

// A step that has all its inputs, in one iteration.
struct Ready {
  int32_t step;
  bool dead;
  Iteration* iteration;
  int64_t scheduled_ns = 0;  // when traced
};
using ReadyList = std::vector<Ready>;

// One plan in the parallel gear: a part of a step.
class ParallelRun : public RefCounted {
 public:
  ParallelRun(Ref<Plan> plan, Ref<Step> step);

  // Called when a fetch has its value (or is dead: an invalid tensor), before the part's end.
  UniqueFunction<void(int position, Tensor value)> on_fetch;

  // Starts all steps that wait for nothing. With `feeds_later`, feeds start with feed().
  void start(bool feeds_later);

  // Runs feed step `step` with this value.
  void feed(int32_t step, Tensor value);
  // Feeds that will never come: their steps are over.
  void abandon_feeds(int64_t count);

  const Plan& plan() const { return *plan_; }

 protected:
  ~ParallelRun() override { plan_->scratch->give_back(0, root_iteration_); }

 private:
  struct AsyncStep;

  // Runs steps until nothing more is ready here, giving some away on the way.
  void run_from(ReadyList todo);

  // Runs steps that became ready outside of run_from().
  void begin(ReadyList ready);

  // The same on a device whose kernels only enqueue: run_in_order.cc.
  void run_in_order(ReadyList ready);
  void end_in_order();

  // Accounts for one finished step that made `next` ready. False when that is none.
  bool count_finished(const ReadyList& next) {
    if (next.size() > 1) {
      in_flight_.fetch_add(static_cast<int64_t>(next.size()) - 1, std::memory_order_relaxed);
    } else if (next.empty()) {
      finish_steps(1);
    }
    return !next.empty();
  }

  // The same, and hands those out.
  void finish(ReadyList& next, ReadyList& todo);

  // Keeps what is cheap and one that is not for this thread; the pool gets the rest.
  void hand_out(ReadyList& next, ReadyList& todo);

  bool is_cheap(const Ready& ready) const;
  bool is_whole_loop(const Ready& ready) const {
    return ready.iteration->frame->gathers &&
           plan_->steps[static_cast<size_t>(ready.step)].control_flow == ControlFlow::kLoopCond;
  }

  void schedule(ReadyList list, bool blocking);

  void finish_steps(int64_t count);

  // A fetch without a value is an error: loops may be wired so that nothing reaches it.
  void check_fetches();

  void free_frames(Iteration* first);

  // Runs one step. False when it goes on asynchronously.
  bool execute(const Ready& ready, ReadyList& next);

  // What the updates of a run call the change that a step makes.
  std::string change_of(const Ready& ready) const;

  // The end of a step whose outputs are in its own iteration.
  void complete(const Ready& ready, Status status, ReadyList& next);

  // Kinds of steps: run_parallel.cc.
  Value& slot(Iteration* iteration, int32_t index) {
    return iteration->slots[static_cast<size_t>(index)];
  }
  int32_t input_slot(const PlanStep& step, int i) const {
    return plan_->inputs[nth(step.first_input, i)];
  }
  Value& input(const PlanStep& step, Iteration* iteration, int i) {
    return slot(iteration, input_slot(step, i));
  }
  bool last_user(const PlanStep& step, Iteration* iteration, int i) {
    return iteration->uses[static_cast<size_t>(input_slot(step, i))].load(
               std::memory_order_acquire) == 1;
  }

  // Points `inputs` to the step's inputs. Returns which of them it is the last to read, as bits.
  uint64_t gather_inputs(const PlanStep& step, Iteration* iteration, Value** inputs);
  KernelContext::Args kernel_args(const Ready& ready, Value* const* inputs, uint64_t movable);

  Status run_kernel(const Ready& ready);

  Status run_feed(const PlanStep& step, Iteration* iteration);

  Status run_fetch(const PlanStep& step, Iteration* iteration);

  // The value of a forwarding step's input, moved when nobody else reads it.
  Status take(const PlanStep& step, Iteration* iteration, int i, Value& out);

  Status run_switch(const PlanStep& step, Iteration* iteration);

  Status run_merge(const PlanStep& step, Iteration* iteration);

  // LoopCond stays in its iteration; the others carry a value to another one.
  Status run_forward(const Ready& ready, ReadyList& next);

  // Runs all iterations of a loop whose inputs are in iteration 0, or lets its frame do so.
  void run_loop(const Ready& ready, ReadyList& next);

  bool start_async(const Ready& ready, ReadyList& next);

  void end_async(AsyncStep* state, ReadyList& next);
  // Ends it on a fresh stack, and begins what it made ready.
  void go_on(AsyncStep* state);

  // Values, who waits for them, and loop frames: parallel_frames.cc.
  void release_input(const PlanStep& step, Iteration* iteration, int i) {
    size_t index = static_cast<size_t>(input_slot(step, i));
    std::atomic<int32_t>& uses = iteration->uses[index];
    int32_t left = uses.load(std::memory_order_acquire);
    if (left == PlanFrame::kKept) return;
    if (left == 1 || uses.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      iteration->slots[index].clear();
    }
  }
  void release_inputs(const PlanStep& step, Iteration* iteration) {
    for (int i = 0; i < step.num_inputs; ++i) release_input(step, iteration, i);
  }

  // Tells the consumers of `step`, whose outputs are in `iteration`, that its values are there.
  void arrive(const PlanStep& step, Iteration* iteration, bool node_dead, ReadyList& next);

  void arrive_at_merge(const PlanEdge& edge, const PlanStep& to, Iteration* iteration,
                       std::atomic<uint64_t>& pending, bool dead, ReadyList& next);

  // Adds `delta` to what is outstanding in an iteration; ends it at zero.
  void account(Iteration* iteration, int64_t delta, ReadyList& next);

  // A dead step: all its outputs are dead.
  void deliver_dead(int32_t step_index, Iteration* iteration, ReadyList& next);

  void note_dead_fetch(const PlanStep& step);

  // Hands the value of an Exit to the iteration around the loop; an error when it did so before.
  void leave(int32_t step_index, Iteration* iteration, Value&& value, ReadyList& next);

  // Hands the value of a forwarding step to the iteration its output belongs to. Returns how many
  // steps became ready in `iteration` itself; the caller accounts for them.
  int64_t deliver(int32_t step_index, Iteration* iteration, Value&& value, ReadyList& next);

  // Stores the value and tells the consumers. Returns how many became ready; the caller accounts
  // for them.
  int64_t put(const PlanStep& step, Iteration* iteration, Value&& value, ReadyList& next);

  // The frame that `step` enters from `iteration`, made when this is the first to come.
  Frame* child_frame(const PlanStep& step, Iteration* iteration);

  Iteration* add_iteration(Frame& frame) MR_REQUIRES(frame.mu);

  void enter(int32_t step_index, Iteration* from, Value&& value, ReadyList& next);

  // The frame from here on: tells the consumers of what has entered. Returns how many became ready
  // in iteration 0.
  int64_t begin_iterations(Frame& frame, ReadyList& next) MR_REQUIRES(frame.mu);
  // Takes what entered a frame into its iterations. Returns how many became ready in iteration 0.
  int64_t enter_now(int32_t step_index, Frame& frame, Value&& value, ReadyList& next)
      MR_REQUIRES(frame.mu);
  // Takes what entered a frame that gathers, and begins when that was all. Returns how many became
  // ready in iteration 0.
  int64_t gather(const PlanStep& step, Frame& frame, Value&& value, ReadyList& next)
      MR_REQUIRES(frame.mu);

  void next_iteration(int32_t step_index, Iteration* iteration, Value&& value, ReadyList& next);

  // Adds the next iteration, with the values of the constant Enters that have come.
  Iteration* start_iteration(Frame& frame, ReadyList& next) MR_REQUIRES(frame.mu);

  // Ends an iteration with nothing outstanding, and whatever ends with it.
  void end_iteration(Iteration* iteration, ReadyList& next);

  // Starts the iteration that waited for room, held by the iteration before it: or, when that is
  // the one that ends, by the caller.
  void start_parked(Frame& frame, ReadyList& next) MR_REQUIRES(frame.mu);

  // Sends the exits that stayed dead and removes the frame. Returns the parent's iteration when
  // that is over too.
  Iteration* end_frame(Frame* frame, ReadyList& next);
  void delete_frame(Frame* frame);

  const Ref<Plan> plan_;
  const Ref<Step> step_;
  const RunTimer timer_;
  bool fed_later_ = false;  // it waits for the caller
  bool measured_ = false;
  bool quick_ = false;            // what it waits for may be followed up on a spare thread
  UpdateLog* updates_ = nullptr;  // the rendezvous has it; null: what is changed is not noted
  Frame root_;
  Iteration* root_iteration_;
  // Steps that are ready or running, anywhere in the run. At zero the run is over.
  std::atomic<int64_t> in_flight_{0};
  std::vector<Frame*> dropped_;

  // Of a plan that enqueues: ready steps, the next in order on top, and whether a thread is at
  // them.
  struct Waiting {
    Ready ready;
    uint64_t arrival;
  };
  static bool later(const Waiting& a, const Waiting& b);
  Mutex order_mu_;
  std::vector<Waiting> waiting_ MR_GUARDED_BY(order_mu_);  // a heap
  uint64_t arrivals_ MR_GUARDED_BY(order_mu_) = 0;
  bool enqueuing_ MR_GUARDED_BY(order_mu_) = false;
};

}  // namespace millrace
