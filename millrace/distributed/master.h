#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/timer.h"
#include "millrace/distributed/cluster.h"
#include "millrace/distributed/patience.h"
#include "millrace/session/session_backend.h"

namespace millrace {

struct MasterOptions {
  // The session's own task: its first CPU is where feeds come from and fetches go to.
  std::string task;
  // Only tasks with a device that matches one of these partial names are asked, and only such
  // devices are used; empty: all. The session's own task is always part of it.
  std::vector<std::string> device_filters;
  // How long to wait for the answers to get_status, register_graph and reset. Steps have the
  // deadlines of their runs instead.
  int64_t call_timeout_ms = 600'000;
  std::string kernel_label;
  // What the session's graphs may reach on the tasks, and whether its state is its own.
  SessionScope scope;
  // Tasks of other processes drop what the session has there when they hear nothing of its master
  // for so long.
  int64_t lease_ms = lease_ms_for(lost_after_ms());
  // A run that waits for its tasks for so long says so; see WaitWatch.
  int64_t report_after_ms = millrace::report_after_ms();
  Ref<Timer> timer = real_timer();
  // Tells this master from all others: names of sessions and numbers of steps come from it. 0:
  // random.
  uint64_t identity = 0;
};

// A session backend over the tasks of a cluster, which can be asked without waiting.
class Master : public SessionBackend {
 public:
  // prepare() without holding a thread: `done` is called once, from any thread, perhaps before this
  // returns.
  virtual void prepare_async(const Subgraph& graph, const Signature& signature,
                             const std::string& session,
                             UniqueFunction<void(Result<Ref<Executable>>)> done) = 0;
};

// Makes a master: cuts graphs by task, registers the parts with the workers and drives steps. One
// for each session. docs/distributed.md has the protocol.
//
// Asks all tasks for their devices: UNAVAILABLE or DEADLINE_EXCEEDED name those that did not
// answer, NOT_FOUND an own task that the cluster does not have. Later, a run on a task that has
// restarted is ABORTED, as is a new signature that needs it; make a new session then.
Result<Ref<SessionBackend>> make_master_backend(Ref<WorkerCache> workers,
                                                const MasterOptions& options);
// The same without holding a thread: `done` is called once, from any thread, perhaps before this
// returns.
void start_master(Ref<WorkerCache> workers, const MasterOptions& options,
                  UniqueFunction<void(Result<Ref<Master>>)> done);

}  // namespace millrace
