#include "millrace/base/mutex.h"

#include <errno.h>
#include <time.h>

namespace millrace {

static_assert(sizeof(Mutex) == sizeof(pthread_mutex_t));  // 40 bytes on x86-64, 48 on ARM

// As it stands, without attributes: every run makes one, and a wait can name its clock.
CondVar::CondVar() : cond_(PTHREAD_COND_INITIALIZER) {}

bool CondVar::wait_until(Mutex& mutex, Deadline deadline) {
  if (deadline.is_none()) {
    wait(mutex);
    return true;
  }
  timespec at;
  at.tv_sec = static_cast<time_t>(deadline.at_ns() / 1'000'000'000);
  at.tv_nsec = static_cast<long>(deadline.at_ns() % 1'000'000'000);
  return pthread_cond_clockwait(&cond_, &mutex.mutex_, CLOCK_MONOTONIC, &at) != ETIMEDOUT;
}

}  // namespace millrace
