#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/cluster.h"

namespace millrace {

// Keeps the leases of one session: tells each of its tasks, six times in a lease, that its master
// lives, and with it what the task could not be told when it was time. Needs no thread of its own.
// Where a task answers that the session is over there, it is not told any more. Thread-safe.
class LeaseKeeper : public RefCounted {
 public:
  // `session` as the tasks know it.
  LeaseKeeper(Ref<WorkerCache> workers, std::string session, int64_t lease_ms, Ref<Timer> timer);

  const std::string& session() const { return session_; }

  // Begins with a task, at once; does nothing for one that is kept already. Returns the lease to
  // ask for when something is registered there: 0 where the task needs none.
  int64_t keep(const std::string& task, uint64_t incarnation);
  // Ends it for all tasks. The timer holds on to the keeper until then.
  void stop();

  // A task will be told that a step, or a graph, is over. Of each the last 4096 are kept.
  void tell_later(const std::string& task, int64_t over_step);
  void tell_later(const std::string& task, std::string over_graph);
  // The steps that the task is to be told of, for who tells it now. What could not be delivered is
  // given back by tell_later().
  std::vector<int64_t> take_over_steps(const std::string& task);

 private:
  struct Kept {
    Ref<WorkerInterface> worker;
    uint64_t incarnation = 0;
    bool asked = false;  // and not answered yet
    bool over = false;   // the task has dropped the session, or is another one now
    std::vector<int64_t> steps;
    std::vector<std::string> graphs;
  };

  // Tells all tasks, and again later.
  void beat();
  void beat_later() MR_REQUIRES(mu_);
  void ask(const std::string& task);
  void answered(const std::string& task, KeepSessionRequest said, const Status& status);

  const Ref<WorkerCache> workers_;
  const std::string session_;
  const int64_t lease_ms_;
  const Ref<Timer> timer_;

  Mutex mu_;
  bool stopped_ MR_GUARDED_BY(mu_) = false;
  uint64_t ticket_ MR_GUARDED_BY(mu_) = 0;
  std::map<std::string, Kept> tasks_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
