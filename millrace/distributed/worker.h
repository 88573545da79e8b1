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
#include "millrace/distributed/step_rendezvous.h"
#include "millrace/distributed/worker_interface.h"
#include "millrace/graph/function.h"
#include "millrace/kernel/function_runner.h"
#include "millrace/kernel/step.h"

namespace millrace {

struct Boundary;

// A task: owns its devices, with all state on them, for as long as its process lives; keeps the
// graphs that masters register; runs them; hands out what they send. register_graph compiles, and
// run_graph begins to run, on the caller's thread; nothing waits on a thread.
//
// A step exists here from the first run_graph, recv_tensor or abort_step that names it until
// cleanup_step, since a peer's recv_tensor may come before the master's run_graph. Calls that name
// a step after that are ABORTED; the last 4096 such steps are remembered.
class Worker final : public WorkerInterface {
 public:
  // `devices` are those of the task called `task`, the first one a CPU: INVALID_ARGUMENT otherwise.
  // `peers` is how the other tasks are reached. Registers all ops on first use.
  static Result<Ref<Worker>> create(std::string task, std::vector<Ref<Device>> devices,
                                    Ref<WorkerCache> peers);

  void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) override;
  void register_graph(RegisterGraphRequest request,
                      UniqueFunction<void(Result<std::string>)> done) override;
  void deregister_graph(std::string graph_handle, StatusDone done) override;
  void run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override;
  void recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                   UniqueFunction<void(Status, Value)> done) override;
  void abort_step(int64_t step_id, Status reason, StatusDone done) override;
  void cleanup_step(int64_t step_id, StatusDone done) override;
  void delete_session(std::string session, StatusDone done) override;
  void reset(std::vector<std::string> containers, StatusDone done) override;

  // Ends every step with `reason` (an error) and answers every later call with it: the task's
  // process ends.
  void shut_down(Status reason);

  const std::string& task() const { return task_->name; }
  uint64_t incarnation() const { return task_->devices[0]->info().incarnation; }
  int num_graphs() const;
  // Steps that exist, and for each what it waits for: "step 7: <key> from <task>, <key>".
  std::vector<std::string> steps() const;

 private:
  struct Graph;
  // A step as this task knows it.
  struct TaskStep {
    Ref<Step> step;
    Ref<StepRendezvous> rendezvous;  // the step's
    bool started = false;
    // Ends what runs and waits, for a reason that did not arise here.
    void end(const Status& reason) const;
  };

  explicit Worker(Ref<const TaskContext> task);
  ~Worker() override;

  // The reason of shut_down(), if it was called.
  Status stopped() const {
    MutexLock lock(mu_);
    return stopped_;
  }
  // What runs functions for kernels of a session, with these added to it.
  Result<Ref<FunctionRunner>> session_functions(const std::string& session,
                                                const std::string& functions);
  Result<std::string> add_graph(const RegisterGraphRequest& request);
  Result<Ref<Graph>> find_graph(const std::string& handle) const;
  // The step of a run, with what the request gives it.
  Result<TaskStep> prepare_run(const Boundary& graph, RunGraphRequest& request);
  // The step, made here when this is the first that is heard of it.
  Result<TaskStep> find_step(int64_t step_id);

  const Ref<const TaskContext> task_;

  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  std::unordered_map<std::string, Ref<Graph>> graphs_ MR_GUARDED_BY(mu_);
  struct Functions {
    Ref<FunctionLibrary> library;
    Ref<FunctionRunner> runner;
  };
  std::unordered_map<std::string, Functions> functions_ MR_GUARDED_BY(mu_);  // by session
  int64_t next_graph_ MR_GUARDED_BY(mu_) = 1;
  std::map<int64_t, TaskStep> steps_ MR_GUARDED_BY(mu_);
  std::unordered_set<int64_t> over_ MR_GUARDED_BY(mu_);
  std::deque<int64_t> over_order_ MR_GUARDED_BY(mu_);  // oldest first
};

}  // namespace millrace
