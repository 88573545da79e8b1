#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"

namespace millrace {

// What time it is, and what is to be done later. Code that waits for time to pass asks for one of
// these, so that a test can let time pass as it likes. Thread-safe.
class Timer : public RefCounted {
 public:
  // Nanoseconds since some fixed moment. Never goes back.
  virtual int64_t now_ns() const = 0;
  // Calls `task` once, when `delay_ns` (at least 0) have passed, on a thread where it may block.
  // Returns a ticket for remove(), which is never 0.
  virtual uint64_t schedule(int64_t delay_ns, UniqueFunction<void()> task) = 0;
  // Takes a task back. True when it will never run; false when it has run or runs now.
  virtual bool remove(uint64_t ticket) = 0;
};

// The monotonic clock. All who use it share one thread, which is there once a task was scheduled;
// tasks run on threads of the process's pool that may block.
const Ref<Timer>& real_timer();

// A timer whose time passes when it is told to.
class ManualTimer final : public Timer {
 public:
  int64_t now_ns() const override;
  uint64_t schedule(int64_t delay_ns, UniqueFunction<void()> task) override;
  bool remove(uint64_t ticket) override;

  // Lets so much time pass, and calls on this thread what becomes due meanwhile, in order, each at
  // its own moment: also what those tasks schedule.
  void advance(int64_t ns);
  // Tasks that are not due yet.
  size_t scheduled() const;

 private:
  mutable Mutex mu_;
  int64_t now_ns_ MR_GUARDED_BY(mu_) = 0;
  uint64_t last_ticket_ MR_GUARDED_BY(mu_) = 0;
  // By moment, then by ticket.
  std::map<std::pair<int64_t, uint64_t>, UniqueFunction<void()>> tasks_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
