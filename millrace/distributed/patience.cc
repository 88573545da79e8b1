#include "millrace/distributed/patience.h"

#include "millrace/base/env.h"

namespace millrace {

int64_t lost_after_ms() {
  static const int64_t value = env_int("MILLRACE_LOST_AFTER_MS", 2000, 10, 3'600'000);
  return value;
}

int64_t report_after_ms() {
  static const int64_t value = env_int("MILLRACE_REPORT_AFTER_MS", 30'000, 0, 86'400'000);
  return value;
}

}  // namespace millrace
