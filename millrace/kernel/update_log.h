#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"

namespace millrace {

// Names a run that may be tried again. Of the runs of one stream, a random number, each has a
// higher number than those before it, and is over before the next begins.
struct UpdateId {
  int64_t stream = 0;  // 0: the run is not to be tried again
  int64_t number = 0;
  bool operator==(const UpdateId&) const = default;
};

// The nodes by which a run has changed the state of a task: variables, queues, accumulators. When
// the run is tried again, they are left out, so that no change is made twice. Thread-safe.
class UpdateLog : public RefCounted {
 public:
  void note(const std::string& node) {
    MutexLock lock(mu_);
    made_.insert(node);
  }
  bool made(const std::string& node) const {
    MutexLock lock(mu_);
    return !made_.empty() && made_.contains(node);
  }

 private:
  mutable Mutex mu_;
  std::unordered_set<std::string> made_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
