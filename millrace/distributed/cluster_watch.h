#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/distributed/cluster.h"

namespace millrace {

// Looks at all tasks of a cluster, again and again: what `millrace top` shows. It changes nothing
// there; the tasks need not know each other, nor it them. Thread-safe.
class ClusterWatch : public RefCounted {
 public:
  struct Task {
    std::string name;     // "/job:J/replica:0/task:T"
    std::string address;  // as the cluster has it
    // Why it did not answer; OK: `activity` is what it answered. DEADLINE_EXCEEDED where it has
    // been silent so far.
    Status status;
    int64_t away_ms = 0;  // since when it has not answered; 0 where it did
    WorkerActivity activity;
  };

  // The tasks are those that the server at the target ("grpc://ADDRESS") knows, asked once.
  // UNAVAILABLE when nobody answers there.
  static Result<Ref<ClusterWatch>> begin(std::string_view target);

  // Asks all of them, and waits for their answers for so long at most. A task that has not answered
  // the time before is not asked again until it has, or is lost. In the order of their names.
  std::vector<Task> look(int64_t timeout_ms);

 private:
  struct Watched {
    std::string name, address;
    Ref<WorkerInterface> worker;
    bool asked = false;   // and has not answered yet
    bool fresh = false;   // `status` and `activity` are of this look
    int64_t last_ns = 0;  // when it last answered, or the watch began
    Status status;
    WorkerActivity activity;
  };

  void ask(size_t i);

  Mutex mu_;
  CondVar changed_;
  std::vector<Watched> tasks_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
