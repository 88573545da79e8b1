#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/distributed/cluster.h"
#include "millrace/distributed/worker.h"

namespace millrace {

// A cluster whose tasks are all in this process: what tests and single-machine programs use.
// Requests go from task to task as they would over a network, graphs as bytes; how is chosen by
// Options::transport.
//
//   MR_TRY_ASSIGN(auto cluster, InProcessCluster::create({.name = "two"}));
//   SessionOptions options;
//   options.target = "inprocess://two";  // or "inprocess://two/job:worker/task:1"
//   MR_TRY_ASSIGN(auto session, Session::create(graph, options));
//
// The session's own task is the one in the target, or else the first. Thread-safe.
class InProcessCluster {
 public:
  enum class Transport : uint8_t {
    kDirect,    // function calls; tensors share memory
    kSameHost,  // as between processes of one machine, see same_host/
    kGrpc,      // as between machines, see grpc/; UNIMPLEMENTED where gRPC is not to be had
  };
  struct Options {
    std::string name;
    Transport transport = Transport::kDirect;
    std::vector<std::pair<std::string, int>> jobs = {{"worker", 2}};  // name, number of tasks
    int cpu_devices = 1;                                              // of each task
    // Of the tasks, and of the masters of sessions over them.
    Ref<Timer> worker_timer = real_timer(), master_timer = real_timer();
  };

  // The name is found by targets until the cluster ends. ALREADY_EXISTS for a name in use;
  // INVALID_ARGUMENT for one that is empty or has a "/", and for jobs that make no cluster.
  static Result<std::unique_ptr<InProcessCluster>> create(const Options& options);
  // Stops all tasks.
  ~InProcessCluster();
  InProcessCluster(const InProcessCluster&) = delete;
  InProcessCluster& operator=(const InProcessCluster&) = delete;

  const ClusterSpec& spec() const;
  // How its tasks are reached; outlives the cluster in the hands of sessions.
  const Ref<WorkerCache>& workers() const;

  // As if the task's process died: its state is lost, what runs and waits there ends, and calls are
  // UNAVAILABLE until it is restarted. NOT_FOUND for an unknown task; OK when it is stopped.
  Status stop(std::string_view task);
  // As if a new process took the place of the old one, which is stopped if it is not: new
  // incarnations, no state, no graphs.
  Status restart(std::string_view task);
  // The task's worker; UNAVAILABLE while it is stopped.
  Result<Ref<Worker>> worker(std::string_view task) const;

 private:
  struct Impl;
  explicit InProcessCluster(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace millrace
