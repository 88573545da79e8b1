#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/distributed/master.h"
#include "millrace/distributed/simulation/simulated_cluster_testing.h"
#include "millrace/kernel/step.h"
#include "millrace/runtime/session_graph.h"

namespace millrace {

// What a user's program is in a simulation: a session over the cluster from one of its processes,
// without a thread. A real master cuts graphs, registers them and drives steps. Where something
// fails, the program makes sure that nothing of its session goes on (every task has said that the
// session is over), and begins anew with another session.
class SimulatedClient : public RefCounted {
 public:
  using Fetches = std::vector<Tensor>;

  // `in_haste`: at once; else, in a process that took the place of another, it waits first until
  // what that one left is gone.
  void begin(bool in_haste = false);
  // Its process has ended.
  void end();
  // What it does at the moment, for messages.
  const std::string& state() const { return state_; }
  int runs() const { return runs_; }
  int failed_runs() const { return failed_runs_; }
  // Those of them that failed for another reason than a variable without a value.
  int lost_runs() const { return lost_runs_; }

 protected:
  SimulatedClient(SimulatedCluster& cluster, Ref<SimulatedCluster::Process> process,
                  Ref<Graph> graph);

  // There is a session: to be done next.
  virtual void go_on() = 0;

  // Makes the signature ready where it is not, and runs it. `done` is called unless the process or
  // the session has ended; an error of a run ends the session where `done` calls fail(). Several
  // may run at once, of different signatures. `update`: who the run is when it is tried again.
  void run(const Signature& signature, std::vector<Tensor> feeds,
           UniqueFunction<void(const Status&, Fetches)> done, UpdateId update = {});
  // The session is of no use: begins anew.
  void fail(const Status& status);
  // The same for a session that others run in, too: what they run is cancelled, and not heard of.
  // Without making sure that nothing of it goes on.
  void fail_in_haste(const Status& status);
  // Calls go_on(), or `what`, later, unless the session has ended.
  void pause(int64_t ms);
  void pause(int64_t ms, UniqueFunction<void()> what);
  // Of the task's process, as the session has found it.
  uint64_t incarnation(const std::string& task) const;
  void close();

  SimulatedCluster& cluster_;
  const Ref<SimulatedCluster::Process> process_;
  std::string state_ = "has not begun";

 private:
  void open();
  void make_ready(const Signature& signature, UniqueFunction<void(Result<Ref<Executable>>)> done);
  void cancel_steps(std::string_view reason);
  void retire(const std::string& task, const std::string& session);

  const Ref<Graph> graph_;
  bool ended_ = false;
  bool in_haste_ = false;
  std::string session_;  // as the tasks know it
  Ref<Master> master_;   // null: there is no session
  std::unique_ptr<SessionGraph> view_;
  std::map<std::string, Ref<Executable>> ready_;  // by signature
  std::map<int64_t, Ref<Step>> steps_;            // that run, by number
  int to_retire_ = 0;
  int runs_ = 0, failed_runs_ = 0, lost_runs_ = 0;
};

}  // namespace millrace
