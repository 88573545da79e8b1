#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/clock.h"
#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class Device;
class FunctionRunner;
class Rendezvous;
class Stream;
class ThreadPool;
class TraceCollector;

// One run: what it was given, what came out of it, and what everybody who works for it shares. Made
// by whoever starts a run (a session, a worker, a function call, a test) and held by reference by
// all who work for it, so that what ends late touches nothing that is gone. Nothing that lives as
// long as a run is kept anywhere else.
//
// The members in the first group are set before the run begins and constant from then on.
class Step final : public RefCounted {
 public:
  explicit Step(int64_t step_id = 0);
  // With a rendezvous in this process's memory and a token of its own, which falls with `parent`
  // (may be null): what a step of several plans needs.
  static Ref<Step> make_shared(int64_t step_id, Ref<CancellationToken> parent = nullptr);

  int64_t id;
  ThreadPool* pool;  // the process's own, unless a test says otherwise
  // At most so many threads of the pool at once, for steps side by side and inside kernels.
  int max_threads = 1 << 20;
  // Where a run on the caller's thread ends between two kernels: at the deadline, or when
  // `interrupted`, asked some ten times a second, answers true. Other runs are left by who waits.
  Deadline deadline;
  bool (*interrupted)() = nullptr;
  // Where the plans of the step meet; null for one plan that sends nothing.
  Ref<Rendezvous> rendezvous;
  // Stops the step; null: nothing can, in a step that runs straight. The step's own, or shared with
  // others when it runs straight. begin() makes one where there is none: errors travel by it.
  Ref<CancellationToken> cancel;
  Ref<TraceCollector> trace;      // null: no tracing
  Ref<FunctionRunner> functions;  // null: no kernel may call functions
  // By position in the signature; invalid where no plan of this process reads it. Memory of a
  // caller who waits, or what hold_feeds() keeps.
  std::span<const Tensor> feeds;

  // By position in the signature: each is set by the plan that owns it, and read when all is over.
  std::vector<Tensor> fetches;

  // Sets the feeds and keeps them, for a step that may outlast its caller.
  void hold_feeds(std::vector<Tensor> values);

  // The container, in the devices' resource managers, of what ends with the step: TensorArrays,
  // stacks.
  std::string container() const;

  // Where the kernels of this step enqueue their work on `device`; null when they do not. The
  // device's own stream.
  Stream* stream(Device& device) const;

  // The first error of the step. Stops the rest of it: cancels the token, aborts the rendezvous.
  void fail(const Status& status);
  // An error that lets the rest of the step run, and is the step's unless there is another.
  void fail_at_end(const Status& status);
  // True once nothing of the step need be started any more.
  bool stopped() {
    if (cancel == nullptr || !cancel->cancelled()) [[likely]]
      return false;
    fail(cancel->status());
    return true;
  }

  // Counts the parts of a step (plans, tasks), which end one by one. `done` is called once, when
  // the last has ended, with this step; it may hold references to it.
  using Done = UniqueFunction<void(Step&)>;
  void begin(int parts, Done done);
  void end_part();

  // Runs `task` on the pool, or later, when max_threads are busy with this step.
  void schedule(UniqueFunction<void()> task);
  // Runs `task` here, as one of the step's threads.
  void run_here(FunctionRef<void()> task);
  // How many threads a kernel may use: what max_threads leaves to each step that runs now.
  int threads_in_kernel() const;

  // Waits for the end of a step that was begun, after `done`. False at the deadline.
  bool wait(Deadline until = Deadline::none());
  // OK, or what has stopped the step.
  Status error() const;
  // OK, or the error that a step which is over ended with.
  Status status() const;

 private:
  ~Step() override;

  std::vector<Tensor> held_feeds_;
  mutable Mutex mu_;
  CondVar changed_;
  int parts_ MR_GUARDED_BY(mu_) = 0;
  bool over_ MR_GUARDED_BY(mu_) = false;
  Status error_ MR_GUARDED_BY(mu_);
  Status late_error_ MR_GUARDED_BY(mu_);
  Done done_ MR_GUARDED_BY(mu_);

  bool capped() const;
  void work(UniqueFunction<void()> task);
  // Takes the next task that waits for a thread; without one, the thread is free.
  bool next_task(UniqueFunction<void()>& task);

  std::atomic<int> busy_{0};  // threads of this step, when capped; changed under mu_
  std::vector<UniqueFunction<void()>> waiting_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
