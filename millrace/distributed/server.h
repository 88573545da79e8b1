#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/file_access.h"
#include "millrace/distributed/cluster.h"

namespace millrace {

struct ServerTask;

// A task of a cluster: its devices, and the state on them, from start() until it ends. Processes of
// this machine and user reach it through shared memory where its address is of this machine
// ("localhost:2222"), others over gRPC as far as Network (network.h) lets them.
//
// A session whose target is "grpc://ADDRESS" runs on the devices of all tasks of the cluster that
// the server at that address knows, less those that its device filters leave out, and begins at
// that server's own. The master of the session is in the session's process. UNAVAILABLE names
// tasks that do not answer, UNIMPLEMENTED those on other machines where there is no gRPC. Where all
// tasks are servers of the session's process, it runs on their devices directly. State belongs to
// the devices: it outlives sessions, and sessions that use the same names share it. Thread-safe.
class Server {
 public:
  struct Options {
    // With an address "host:port" for every task; the server's own port may be 0, for a free one.
    ClusterSpec cluster;
    std::string job;
    int task = 0;
    int cpu_devices = 1;
    // A serialised ConfigProto, into which those of TensorFlow's clients are merged.
    std::string config;
    // The files that graphs may reach on its devices; null: all. Sessions cannot say otherwise.
    Ref<FileAccess> files;
    // A port that tells Prometheus what the task does (metrics_port.h); 0: a free one, -1: none.
    int metrics_port = -1;
  };

  // INVALID_ARGUMENT for an address without a port, NOT_FOUND for a task that the cluster does not
  // have, UNKNOWN when the address, or the port for metrics, cannot be had: another server has it
  // for one.
  static Result<std::unique_ptr<Server>> start(const Options& options);
  // Ends it: its state is dropped, what others run on it ends, and no session finds it any more.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Its own, with the port that it got.
  const std::string& address() const;
  // "http://127.0.0.1:9100/metrics"; empty without a port for metrics.
  std::string metrics_url() const;

  // Makes targets "grpc://" known. OK when it was called before.
  static Status register_targets();

  // What the task at the address of a target ("grpc://ADDRESS") has at the moment: sessions,
  // graphs, queues, steps and what these wait for; and what it has done so far. ClusterWatch
  // (cluster_watch.h) looks at all tasks.
  static Result<WorkerActivity> activity(std::string_view target);

  // Tells all tasks of the cluster that the server at the target knows to end: the process of each
  // gets SIGTERM, as from a scheduler, so that what drains on SIGTERM drains. Waits for their
  // answers, not for their end. UNAVAILABLE names those that could not be told; the others were.
  // PERMISSION_DENIED for clients that may not reach everything there.
  static Status stop_cluster(std::string_view target);

  // Drops the resources in these containers on the tasks that a session with this target and these
  // device filters would use; none named: in the default one, which a job's name stands for too.
  static Status reset(std::string_view target, std::span<const std::string> containers,
                      const std::vector<std::string>& device_filters = {});

 private:
  explicit Server(Ref<ServerTask> task);
  const Ref<ServerTask> task_;
};

}  // namespace millrace
