#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "millrace/base/file_access.h"
#include "millrace/distributed/cluster.h"

namespace millrace {

struct ServerTask;

// A task of a cluster in this process, without a network: its devices, and the state on them, from
// start() until it ends.
//
// A session whose target is "grpc://ADDRESS" runs on the devices of all tasks of the cluster that
// the server at that address knows, and begins at that server's own. They must be servers of this
// process, or be left out by the session's device filters: UNIMPLEMENTED names those that are not.
// State belongs to the devices: it outlives sessions, and sessions that use the same names share
// it. Thread-safe.
class LocalServer {
 public:
  struct Options {
    ClusterSpec cluster;  // with an address "host:port" for every task
    std::string job;
    int task = 0;
    int cpu_devices = 1;
    // The files that graphs may reach on its devices; null: all. Sessions cannot say otherwise.
    Ref<FileAccess> files;
  };

  // INVALID_ARGUMENT for an address without a port, NOT_FOUND for a task that the cluster does not
  // have, UNKNOWN when a server of this process has the address.
  static Result<std::unique_ptr<LocalServer>> start(const Options& options);
  // Ends it: its state is dropped, and no session finds it any more.
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // Makes targets "grpc://" known. OK when it was called before.
  static Status register_targets();

  // Drops the resources in these containers on the tasks that a session with this target would use;
  // none named: in the default one, which a job's name stands for too.
  static Status reset(std::string_view target, std::span<const std::string> containers);

 private:
  explicit LocalServer(Ref<ServerTask> task);
  const Ref<ServerTask> task_;
};

}  // namespace millrace
