#include "millrace/distributed/patience.h"

#include "millrace/base/env.h"

namespace millrace {
namespace {

constexpr std::string_view kSilent = ": it has said nothing for ";

}  // namespace

int64_t lost_after_ms() {
  static const int64_t value = env_int("MILLRACE_LOST_AFTER_MS", 2000, 10, 3'600'000);
  return value;
}

int64_t report_after_ms() {
  static const int64_t value = env_int("MILLRACE_REPORT_AFTER_MS", 30'000, 0, 86'400'000);
  return value;
}

Status silent_peer(std::string_view peer, int64_t silent_ms) {
  return unavailable("lost ", peer, kSilent, silent_ms, " ms");
}

bool is_silent_peer(const Status& status) {
  return status.code() == Code::kUnavailable &&
         status.message().find(kSilent) != std::string_view::npos;
}

}  // namespace millrace
