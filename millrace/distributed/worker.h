#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/collective/task_collectives.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/task_graph.h"
#include "millrace/distributed/task_sessions.h"
#include "millrace/distributed/task_steps.h"
#include "millrace/distributed/update_logs.h"
#include "millrace/distributed/worker_interface.h"

namespace millrace {

// A task: owns its devices, with all state on them, for as long as its process lives; keeps the
// graphs that masters register; runs them; hands out what they send. register_graph compiles, and
// run_graph begins to run, on the caller's thread; nothing waits on a thread.
//
// A step exists here from the first run_graph, recv_tensor or abort_step that names it until
// cleanup_step, since a peer's recv_tensor may come before the master's run_graph. Calls that name
// a step after that are ABORTED; the last 4096 such steps are remembered. A step that no run_graph
// has named, and in which nobody waits, is forgotten after a while.
//
// A session exists here from its first register_graph or keep_session until delete_session or the
// end of its lease. With it end its graphs, its steps, its functions and the resources that are its
// own.
class Worker final : public WorkerInterface {
 public:
  // `devices` are those of the task called `task`, the first one a CPU: INVALID_ARGUMENT otherwise.
  // `peers` is how the other tasks are reached. Registers all ops on first use. `timer` tells when
  // leases end; it may hold on to the worker until shut_down(). Kernels run on `pool` (null: the
  // process's own), which outlives the worker.
  static Result<Ref<Worker>> create(std::string task, std::vector<Ref<Device>> devices,
                                    Ref<WorkerCache> peers, Ref<Timer> timer = real_timer(),
                                    ThreadPool* pool = nullptr);

  void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) override;
  void register_graph(RegisterGraphRequest request,
                      UniqueFunction<void(Result<std::string>)> done) override;
  void deregister_graph(std::string graph_handle, StatusDone done) override;
  void run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override;
  void recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                   UniqueFunction<void(Status, Value)> done) override;
  void give_tensor(int64_t step_id, std::string key, Value value, StatusDone done) override;
  void abort_step(int64_t step_id, Status reason, StatusDone done) override;
  void cleanup_step(int64_t step_id, StatusDone done) override;
  void keep_session(KeepSessionRequest request, StatusDone done) override;
  void delete_session(std::string session, StatusDone done) override;
  void get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) override;
  void reset(std::vector<std::string> containers, StatusDone done) override;
  void join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<GroupView>)> done) override;
  void recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<Tensor>)> done) override;
  void end_group(EndGroupRequest request, StatusDone done) override;

  // Ends every step with `reason` (an error) and answers every later call with it: the task's
  // process ends.
  void shut_down(Status reason);

  const std::string& task() const { return task_->name; }
  uint64_t incarnation() const { return task_->devices[0]->info().incarnation; }
  int num_graphs() const;
  // Steps that exist, and for each what it waits for: "step 7: <key> from <task>, <key>".
  std::vector<std::string> steps() const;
  // What the task's devices compute with those of other tasks.
  const Ref<TaskCollectives>& collectives() const { return collectives_; }
  // What steps use for that: collectives(), or what was chosen in its place, which passes on to it
  // what it does not do. To be chosen before anything runs.
  const Ref<Collectives>& chosen_collectives() const { return chosen_collectives_; }
  void choose_collectives(Ref<Collectives> chosen);
  // What get_activity() answers.
  WorkerActivity activity(int64_t step_id) const;

 private:
  Worker(Ref<const TaskContext> task, const ServerLimits& limits, ThreadPool* pool);
  ~Worker() override;

  int64_t now_ns() const { return task_->timer->now_ns(); }
  // The reason of shut_down(), if it was called.
  Status stopped() const {
    MutexLock lock(mu_);
    return stopped_;
  }
  // ABORTED unless `incarnation` is 0 or this task's.
  Status check_incarnation(uint64_t incarnation) const;
  // TaskSessions::hear_of(), and looks for the end of the lease.
  Result<Ref<TaskSession>> hear_of(const std::string& name, int64_t lease_ms,
                                   const std::string& client);
  Result<std::string> add_graph(const RegisterGraphRequest& request);
  Result<Ref<TaskGraph>> find_graph(const std::string& handle) const;
  // Steps that are over, as cleanup_step() has it.
  void end_steps(const std::vector<int64_t>& step_ids);
  // Ends all that a session has with `reason`.
  void end_session(const std::string& name, const Status& reason);
  // Looks, when it is time, for leases that ran out and steps that nobody wants.
  void watch_later(int64_t delay_ns);
  void watch_for_idle() { watch_later(idle_ns_); }
  void watch();

  // The rest is in worker_run.cc.
  //
  // The step of a run, with what the request gives it.
  Result<TaskStep> prepare_run(const Ref<TaskGraph>& graph, RunGraphRequest& request);
  // Hands what a call brought to its step.
  void take_brought(const TaskStep& step, RunGraphRequest& request);
  // The second call of a run.
  void continue_run(const Ref<TaskGraph>& graph, RunGraphRequest request,
                    Ref<CancellationToken> cancel,
                    UniqueFunction<void(Status, RunGraphResponse)> done);
  // Takes what a step sends under these keys, unless `until` is cancelled before.
  using ValuesDone = UniqueFunction<void(Status, std::vector<Value>)>;
  struct Gathered;
  void take_sent(int64_t step_id, const std::vector<std::string>& keys,
                 const Ref<CancellationToken>& until, ValuesDone done);
  // Answers the first call of a run once the run has sent what is sent early.
  void answer_early(const TaskStep& run, const std::vector<std::string>& keys,
                    const Ref<CancellationToken>& until);
  // What the run of the request has changed in earlier tries; null: it is not tried again. ABORTED
  // while one of these has not ended, which is told to.
  Result<Ref<UpdateLog>> begin_update(const RunGraphRequest& request);
  // A run that was prepared is over.
  void end_run(const TaskGraph& graph, UpdateId update);

  const Ref<const TaskContext> task_;
  const int64_t began_ns_;
  const Ref<GraphBytes> graph_bytes_;
  const Ref<TaskCollectives> collectives_;
  Ref<Collectives> chosen_collectives_;
  const int64_t idle_ns_ = lease_ms_for(lost_after_ms()) * 1'000'000;
  TaskSessions sessions_;
  TaskSteps steps_;
  UpdateLogs updates_;

  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  std::unordered_map<std::string, Ref<TaskGraph>> graphs_ MR_GUARDED_BY(mu_);
  uint64_t watch_ticket_ MR_GUARDED_BY(mu_) = 0;
  int64_t watch_at_ns_ MR_GUARDED_BY(mu_) = INT64_MAX;
  int64_t next_graph_ MR_GUARDED_BY(mu_) = 1;
};

}  // namespace millrace
