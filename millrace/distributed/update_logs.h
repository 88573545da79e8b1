#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>

#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/kernel/update_log.h"

namespace millrace {

// What the last run of each stream has changed on a task. Remembers 4096 streams, and those of runs
// that have not ended; of others those that were used last. Thread-safe.
class UpdateLogs {
 public:
  static constexpr size_t kMaxStreams = 4096;

  // A run, or another try of it, begins as step `step_id`: with the log of its earlier tries. Where
  // one of these has not ended yet, it is ABORTED, and `before` becomes the step of that one.
  // ABORTED also for a run that is older than the last of its stream; INVALID_ARGUMENT for numbers
  // below zero.
  Result<Ref<UpdateLog>> begin(UpdateId id, int64_t step_id, int64_t& before);
  // That try is over: nothing of it runs any more.
  void end(UpdateId id);

  size_t num_streams() const;

 private:
  struct Stream {
    int64_t number = 0;
    int64_t step_id = 0;
    bool running = false;
    Ref<UpdateLog> log;
    std::list<int64_t>::iterator used;
  };

  void forget_oldest() MR_REQUIRES(mu_);

  mutable Mutex mu_;
  std::unordered_map<int64_t, Stream> streams_ MR_GUARDED_BY(mu_);
  std::list<int64_t> order_ MR_GUARDED_BY(mu_);  // used last: at the end
};

}  // namespace millrace
