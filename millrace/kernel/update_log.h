#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>

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

// The changes that a run has made to the state of a task: variables, queues, accumulators. When the
// run is tried again, they are left out, so that none is made twice. A change is known by its node
// and, in loops, by the frame and the iteration. The first kMaxChanges of a run are noted.
// Thread-safe.
class UpdateLog : public RefCounted {
 public:
  static constexpr size_t kMaxChanges = size_t{1} << 16;

  void note(std::string change) {
    MutexLock lock(mu_);
    if (made_.size() < kMaxChanges) made_.insert(std::move(change));
  }
  bool made(const std::string& change) const {
    MutexLock lock(mu_);
    return made_.contains(change);
  }

 private:
  mutable Mutex mu_;
  std::unordered_set<std::string> made_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
