#include "millrace/base/clock.h"

#include <time.h>

namespace millrace {

int64_t monotonic_nanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t wall_micros() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
}

Deadline Deadline::after_nanos(int64_t duration_ns) {
  Deadline deadline;
  if (__builtin_add_overflow(monotonic_nanos(), duration_ns < 0 ? 0 : duration_ns,
                             &deadline.at_ns_)) {
    deadline.at_ns_ = kNever;
  }
  return deadline;
}

Deadline Deadline::after_millis(int64_t duration_ms) {
  constexpr int64_t kNanosPerMilli = 1'000'000;
  if (duration_ms > INT64_MAX / kNanosPerMilli) return none();
  return after_nanos(duration_ms < 0 ? 0 : duration_ms * kNanosPerMilli);
}

int64_t Deadline::remaining_ns() const {
  if (is_none()) return INT64_MAX;
  const int64_t left = at_ns_ - monotonic_nanos();
  return left < 0 ? 0 : left;
}

}  // namespace millrace
