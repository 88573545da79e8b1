#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/distributed/network.h"
#include "millrace/distributed/rpc/channel.h"
#include "millrace/distributed/server_limits.h"
#include "millrace/distributed/task_service.h"
#include "millrace/distributed/worker.h"

// A session may bring its cluster itself (ConfigProto.cluster_def): then each server that it names
// is, for that session, the task that the cluster has at its address, whatever it was started as.
// An alias is the server as such a task: a Worker of its own, with peers of its own, on devices
// that have other names and the same state. It goes by an id that the session's master makes up;
// calls to it are "/millrace.Alias/<id>/<method of a worker>".

namespace millrace {

inline constexpr std::string_view kAliasPrefix = "/millrace.Alias/";

// The server at the other end of `channel` as the task that `description` says. It is told so with
// get_status, and with register_graph if it has forgotten it by then. `id` is the same for all
// tasks of the session.
Ref<Channel> make_alias_channel(Ref<Channel> channel, std::string id,
                                const TaskDescription& description);

// How all tasks of a session's cluster are reached, but those that `left_out` names.
Result<Ref<WorkerCache>> alias_workers(const ClusterSpec& cluster, const std::string& id,
                                       const Network& network, std::string_view left_out = "");

// The aliases of a server. One in which no session is left is forgotten when its last one ends, or
// when another is made. Thread-safe.
class TaskAliases final : public CallHandler {
 public:
  // `devices`, all CPUs, are the server's.
  TaskAliases(std::vector<Ref<Device>> devices, const Network& network, const ServerLimits& limits);
  ~TaskAliases() override;

  // INVALID_ARGUMENT for what is no id and for an alias that is another task already,
  // RESOURCE_EXHAUSTED where there are as many as there may be sessions, else what the worker says.
  void handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
              CallDone done) override;
  // Adds to what the server's own task tells: sessions and steps of all aliases, or of the one step
  // named, and, with all (0), what they have counted, also those that are forgotten. Queues are the
  // server's own.
  void tell(int64_t step_id, WorkerActivity& out) const;
  // As Worker::shut_down(), of all; none is made any more.
  void shut_down(const Status& reason);

 private:
  struct Alias : RefCounted {
    TaskDescription description;
    Ref<Worker> worker;
    Ref<CallHandler> service;
    int64_t made_ns = 0;
  };

  Status join(const std::string& id, const Message& request);
  Result<Ref<Alias>> make_alias(const std::string& id, TaskDescription description) const;
  Ref<Alias> find(const std::string& id) const;
  // Drops those without sessions, but for new ones, whose session may begin yet; `ended`: its
  // session has been.
  void forget_idle(const std::string& ended);

  const std::vector<Ref<Device>> devices_;
  const Network network_;
  const ServerLimits limits_;
  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  std::map<std::string, Ref<Alias>> aliases_ MR_GUARDED_BY(mu_);
  WorkerActivity forgotten_ MR_GUARDED_BY(mu_);  // what they had counted, all peers as one
};

}  // namespace millrace
