#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <unordered_set>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/distributed/run_answer.h"
#include "millrace/distributed/step_rendezvous.h"
#include "millrace/distributed/task_graph.h"
#include "millrace/kernel/collectives.h"
#include "millrace/kernel/step.h"

namespace millrace {

// A step as one task knows it.
struct TaskStep {
  Ref<Step> step;
  Ref<StepRendezvous> rendezvous;  // the step's
  Ref<TaskGraph> graph;            // null: no run_graph has come
  RunAnswers answers;              // of that run
  int64_t began_ns = -1;           // when that run came
  int64_t idle_ns = -1;  // without a graph: since when nobody was seen to wait; -1: not yet

  // Ends what runs and waits, for a reason that did not arise here.
  void end(const Status& reason) const;
};

// The steps of a task. One exists from the first find() until it is taken; then calls that name it
// are ABORTED, and the last kRemembered such are remembered. What is taken, the caller ends.
// Thread-safe.
class TaskSteps {
 public:
  static constexpr size_t kRemembered = 4096;

  // Steps run on `pool` (null: the process's own) and compute with other tasks' by `collectives`.
  TaskSteps(Ref<const TaskContext> task, Ref<Collectives> collectives, ThreadPool* pool);
  // In place of those; before there is any step.
  void choose_collectives(Ref<Collectives> chosen) { collectives_ = std::move(chosen); }

  // The step, made here when this is the first that is heard of it. ABORTED when it is over.
  Result<TaskStep> find(int64_t step_id);
  // The same where the step is known; without a step otherwise.
  TaskStep find_known(int64_t step_id) const;
  // From now on the step runs this graph, and its session one step more. ABORTED when the step is
  // over or has a run already, or when the session has ended.
  Status begin_run(int64_t step_id, Ref<TaskGraph> graph, RunAnswers answers, int64_t now_ns);

  // Takes steps out, known or not; those that were known.
  std::vector<TaskStep> take(std::span<const int64_t> step_ids);
  std::vector<TaskStep> take_of(const TaskSession& session);
  // Takes out steps that no run has named and in which nobody has been waiting for `idle_ns`. True
  // when steps without a run are left, so that it is worth to look again.
  bool forget_idle(int64_t now_ns, int64_t idle_ns);
  // Takes out all; find() answers with `reason` from now on.
  std::vector<TaskStep> shut_down(Status reason);

  // Those that exist, in the order of their ids.
  std::vector<TaskStep> all() const;

 private:
  TaskStep take_locked(int64_t step_id) MR_REQUIRES(mu_);

  const Ref<const TaskContext> task_;
  Ref<Collectives> collectives_;
  ThreadPool* const pool_;

  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  std::map<int64_t, TaskStep> steps_ MR_GUARDED_BY(mu_);
  std::unordered_set<int64_t> over_ MR_GUARDED_BY(mu_);
  std::deque<int64_t> over_order_ MR_GUARDED_BY(mu_);  // oldest first
};

}  // namespace millrace
