#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/distributed/server_limits.h"
#include "millrace/distributed/session_leases.h"
#include "millrace/distributed/step_rendezvous.h"
#include "millrace/distributed/worker_interface.h"
#include "millrace/graph/function.h"
#include "millrace/kernel/function_runner.h"

namespace millrace {

// A master's session as one task knows it: what its graphs run with there, and how many steps of
// it run. Its graphs and steps hold it. Thread-safe.
class TaskSession : public RefCounted {
 public:
  TaskSession(std::string name, std::string client, Ref<const TaskContext> task);

  const std::string& name() const { return name_; }
  // Who made it, as far as that is known.
  const std::string& client() const { return client_; }

  // Gives a session with its first graph the devices it runs on; INVALID_ARGUMENT for another scope
  // than that one's.
  Status open(const SessionScope& scope);
  // Takes the functions of a FunctionDefLibrary, given as bytes; INVALID_ARGUMENT for bytes that
  // are none.
  Status add_functions(const std::string& functions);
  // What open() made, constant from then on: the task's devices or its own, and what calls its
  // functions.
  std::vector<Ref<Device>> devices() const;
  Ref<FunctionRunner> functions() const;

  // ABORTED, saying why, when it has ended.
  Status check() const;
  // check(), and one step more runs until end_run().
  Status begin_run();
  // That step is over. After the last one of a session that has ended, what its kernels made since
  // is dropped.
  void end_run();
  // Nothing of it may begin any more, which is refused with `why`, an error. What runs is the
  // caller's to end, before clear_resources().
  void end(Status why);
  // Drops the resources that are its own.
  void clear_resources();

 private:
  const std::string name_;
  const std::string client_;
  const Ref<const TaskContext> task_;
  const Ref<FunctionLibrary> library_ = make_ref<FunctionLibrary>();

  mutable Mutex mu_;
  SessionScope scope_ MR_GUARDED_BY(mu_);
  std::vector<Ref<Device>> devices_ MR_GUARDED_BY(mu_);
  Ref<FunctionRunner> functions_ MR_GUARDED_BY(mu_);  // null: not open
  int running_ MR_GUARDED_BY(mu_) = 0;
  Status ended_ MR_GUARDED_BY(mu_);  // why; OK: it has not
};

// The sessions that a task knows, until when each is kept, and how many there may be. A session is
// made when it is first heard of, and known until end() or the end of its lease. Times are those of
// the task's timer. Thread-safe.
class TaskSessions {
 public:
  TaskSessions(Ref<const TaskContext> task, const ServerLimits& limits);

  // The session, heard of now from `client`; made when it is new. ABORTED when its lease ran out
  // before, INVALID_ARGUMENT for what is no lease (SessionLeases), RESOURCE_EXHAUSTED when there is
  // no room for another session, or none of that client's.
  Result<Ref<TaskSession>> hear_of(const std::string& name, int64_t lease_ms,
                                   const std::string& client);
  // ABORTED, saying since when, for a session whose lease ran out; OK for all others.
  Status check_lease(const std::string& name) const;

  // Forgets a session, after TaskSession::end(); null: there is none of that name.
  Ref<TaskSession> end(const std::string& name);
  // The sessions whose lease has run out, to be ended, each with what hear_of() says of it from now
  // on.
  std::vector<std::pair<std::string, Status>> take_lapsed(int64_t now_ns);
  // When the next lease runs out if nobody is heard of; INT64_MAX: none does.
  int64_t next_lapse_ns() const;

  // Forgets all, which the caller ends, and answers hear_of() with `reason` from now on.
  std::vector<Ref<TaskSession>> shut_down(Status reason);

  // Each with what is left of its lease; the graphs are not counted.
  std::vector<WorkerActivity::Session> tell(int64_t now_ns) const;

 private:
  Status check_room(const std::string& client) const MR_REQUIRES(mu_);

  const Ref<const TaskContext> task_;
  const ServerLimits limits_;

  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  std::unordered_map<std::string, Ref<TaskSession>> sessions_ MR_GUARDED_BY(mu_);
  SessionLeases leases_ MR_GUARDED_BY(mu_);  // of the same sessions
};

}  // namespace millrace
