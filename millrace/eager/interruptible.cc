#include "millrace/eager/interruptible.h"

namespace millrace::eager {
namespace {

constexpr int64_t kAskEveryMs = 100;

Status interrupted_error() { return cancelled("the call was interrupted"); }

}  // namespace

thread_local constinit Interruptible::Interrupted Interruptible::here_ = nullptr;

bool Ending::wait(Step& step) {
  const Interruptible::Interrupted interrupted = Interruptible::here();
  MutexLock lock(mu_);
  while (!over_) {
    if (interrupted == nullptr) {
      changed_.wait(mu_);
      continue;
    }
    if (changed_.wait_until(mu_, Deadline::after_millis(kAskEveryMs)) || over_) continue;
    lock.unlock();
    if (interrupted()) {
      step.cancel->cancel(interrupted_error());
      return false;
    }
    lock.lock();
  }
  return true;
}

Status InterruptWatch::look() {
  const Interruptible::Interrupted interrupted = Interruptible::here();
  if (interrupted == nullptr) return ok_status();
  const int64_t now = monotonic_nanos();
  if (asked_at_ns_ == 0) asked_at_ns_ = now;
  if (now - asked_at_ns_ < kAskEveryMs * 1'000'000) return ok_status();
  asked_at_ns_ = now;
  return interrupted() ? interrupted_error() : ok_status();
}

}  // namespace millrace::eager
