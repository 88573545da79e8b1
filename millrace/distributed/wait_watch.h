#pragma once

#include <cstdint>
#include <map>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/timer.h"

namespace millrace {

// Who may wait for long, and can say for what.
class Waiting : public RefCounted {
 public:
  // It has waited for so long. Called on a thread where it may block, perhaps after the wait ended.
  virtual void tell(int64_t waited_ms) = 0;
};

// Tells those who wait for `first_ms` (0: nobody is told), and again whenever they have waited
// twice as long. One timer task for all of them, none while nobody waits. Thread-safe.
class WaitWatch : public RefCounted {
 public:
  WaitWatch(Ref<Timer> timer, int64_t first_ms) : timer_(std::move(timer)), first_ms_(first_ms) {}

  // A wait begins; the number is end()'s.
  uint64_t begin(Ref<Waiting> waiting);
  void end(uint64_t wait);
  // Tells nobody any more. The timer may hold on to the watch until then.
  void stop();

 private:
  struct Wait {
    Ref<Waiting> waiting;
    int64_t began_ns = 0;
    int64_t next_ms = 0;  // how long it has waited when it is told next
    int64_t due_ns() const { return began_ns + next_ms * 1'000'000; }
  };

  void look();
  void look_at(int64_t due_ns) MR_REQUIRES(mu_);

  const Ref<Timer> timer_;
  const int64_t first_ms_;
  Mutex mu_;
  bool stopped_ MR_GUARDED_BY(mu_) = false;
  uint64_t ticket_ MR_GUARDED_BY(mu_) = 0;  // 0: nothing is scheduled
  uint64_t last_ MR_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Wait> waits_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
