#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/collective/task_collectives.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/run_answer.h"
#include "millrace/distributed/server_limits.h"
#include "millrace/distributed/session_leases.h"
#include "millrace/distributed/step_rendezvous.h"
#include "millrace/distributed/update_logs.h"
#include "millrace/distributed/worker_interface.h"
#include "millrace/graph/function.h"
#include "millrace/kernel/function_runner.h"
#include "millrace/kernel/step.h"

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
  // What get_activity() answers.
  WorkerActivity activity(int64_t step_id) const;

 private:
  struct Graph;
  // What the graphs take that exist, also those that are only used by steps still.
  struct GraphBytes;
  // What a session has here besides graphs and steps. `running` and `ended` belong to mu_.
  struct SessionState;
  // A step as this task knows it.
  struct TaskStep {
    Ref<Step> step;
    Ref<StepRendezvous> rendezvous;  // the step's
    Ref<Graph> graph;                // null: no run_graph has come
    Ref<RunAnswer> answer;           // of that run
    int64_t began_ns = -1;           // when that run came
    int64_t idle_ns = -1;  // without a graph: since when nobody was seen to wait; -1: not yet
    // Ends what runs and waits, for a reason that did not arise here.
    void end(const Status& reason) const;
  };

  Worker(Ref<const TaskContext> task, Ref<Timer> timer, ThreadPool* pool);
  ~Worker() override;

  // The reason of shut_down(), if it was called.
  Status stopped() const {
    MutexLock lock(mu_);
    return stopped_;
  }
  // ABORTED unless `incarnation` is 0 or this task's.
  Status check_incarnation(uint64_t incarnation) const;
  // The session, heard of now from a client; made when it is new.
  Result<Ref<SessionState>> find_session(const std::string& name, int64_t lease_ms,
                                         const std::string& client);
  // RESOURCE_EXHAUSTED when there is no room for another session, or none of that client's.
  Status check_room(const std::string& client) const MR_REQUIRES(mu_);
  // Gives a session with its first graph the devices it runs on; INVALID_ARGUMENT for another scope
  // than that one's.
  Status open_session(SessionState& session, const SessionScope& scope);
  Status add_functions(SessionState& session, const std::string& functions) const;
  // ABORTED, saying why, when it has ended.
  Status check_session(const SessionState& session) const MR_REQUIRES(mu_);
  Result<std::string> add_graph(const RegisterGraphRequest& request);
  Result<Ref<Graph>> find_graph(const std::string& handle) const;
  // The step of a run, with what the request gives it.
  Result<TaskStep> prepare_run(const Ref<Graph>& graph, RunGraphRequest& request,
                               const Ref<RunAnswer>& answer);
  // Of the run in the step, where it is one of this graph; null otherwise.
  Ref<RunAnswer> find_answer(const Ref<Graph>& graph, int64_t step_id) const;
  // Takes what a step whose run is over has sent under these keys.
  using ValuesDone = UniqueFunction<void(Status, std::vector<Value>)>;
  struct Gathered;
  void take_sent(int64_t step_id, const std::vector<std::string>& keys, ValuesDone done);
  // What the run of the request has changed in earlier tries; null: it is not tried again. ABORTED
  // while one of these has not ended, which is told to.
  Result<Ref<UpdateLog>> begin_update(const RunGraphRequest& request);
  // A run that was prepared is over.
  void end_run(const Ref<Graph>& graph, UpdateId update);
  // The step, made here when this is the first that is heard of it.
  Result<TaskStep> find_step(int64_t step_id);
  // Takes a step out, so that calls which name it are refused; what it was, to be ended.
  TaskStep take_step(int64_t step_id) MR_REQUIRES(mu_);
  // Steps that are over, as cleanup_step() has it.
  void end_steps(const std::vector<int64_t>& step_ids);
  // Ends all that a session has with `reason`.
  void end_session(const std::string& name, const Status& reason);
  void clear_resources(const SessionState& session);
  // Looks, when it is time, for leases that ran out and steps that nobody wants.
  void watch_later(int64_t delay_ns) MR_REQUIRES(mu_);
  void watch_for_idle();
  void watch();
  void forget_idle_steps(int64_t now_ns);

  const Ref<const TaskContext> task_;
  const Ref<Timer> timer_;
  const int64_t began_ns_;
  const ServerLimits limits_ = ServerLimits::from_environment();
  const Ref<GraphBytes> graph_bytes_;
  const Ref<TaskCollectives> collectives_;
  ThreadPool* const pool_;  // null: the process's own
  UpdateLogs updates_;
  const int64_t idle_ns_ = lease_ms_for(lost_after_ms()) * 1'000'000;

  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  std::unordered_map<std::string, Ref<Graph>> graphs_ MR_GUARDED_BY(mu_);
  std::unordered_map<std::string, Ref<SessionState>> sessions_ MR_GUARDED_BY(mu_);
  SessionLeases leases_ MR_GUARDED_BY(mu_);  // of the same sessions
  uint64_t watch_ticket_ MR_GUARDED_BY(mu_) = 0;
  int64_t watch_at_ns_ MR_GUARDED_BY(mu_) = INT64_MAX;
  int64_t next_graph_ MR_GUARDED_BY(mu_) = 1;
  std::map<int64_t, TaskStep> steps_ MR_GUARDED_BY(mu_);
  std::unordered_set<int64_t> over_ MR_GUARDED_BY(mu_);
  std::deque<int64_t> over_order_ MR_GUARDED_BY(mu_);  // oldest first
};

}  // namespace millrace
