#include "millrace/base/mutex.h"

#include <errno.h>
#include <time.h>

namespace millrace {

static_assert(sizeof(Mutex) <= 40);

CondVar::CondVar() {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&cond_, &attributes);
  pthread_condattr_destroy(&attributes);
}

bool CondVar::wait_until(Mutex& mutex, Deadline deadline) {
  if (deadline.is_none()) {
    wait(mutex);
    return true;
  }
  timespec at;
  at.tv_sec = static_cast<time_t>(deadline.at_ns() / 1'000'000'000);
  at.tv_nsec = static_cast<long>(deadline.at_ns() % 1'000'000'000);
  return pthread_cond_timedwait(&cond_, &mutex.mutex_, &at) != ETIMEDOUT;
}

}  // namespace millrace
