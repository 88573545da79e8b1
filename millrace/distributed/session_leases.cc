#include "millrace/distributed/session_leases.h"

#include <time.h>

#include <algorithm>
#include <cstdio>

#include "millrace/base/clock.h"

namespace millrace {
namespace {

constexpr size_t kRememberedSessions = 4096;
constexpr int64_t kNanosPerMilli = 1'000'000;

// The date's clock, so many nanoseconds ago: "14:05:59 UTC".
std::string time_ago(int64_t ns) {
  const time_t seconds = static_cast<time_t>((wall_micros() - ns / 1000) / 1'000'000);
  tm parts;
  gmtime_r(&seconds, &parts);
  char text[32];
  std::snprintf(text, sizeof text, "%02d:%02d:%02d UTC", parts.tm_hour, parts.tm_min, parts.tm_sec);
  return text;
}

}  // namespace

Status SessionLeases::keep(const std::string& session, int64_t lease_ms, int64_t now_ns) {
  if (lease_ms < 0 || lease_ms > kMaxLeaseMs) {
    return invalid_argument("session ", session, ": expected a lease of 0 to ", kMaxLeaseMs,
                            " ms, got ", lease_ms);
  }
  MR_TRY(check(session));
  known_[session] = {lease_ms * kNanosPerMilli, now_ns};
  return ok_status();
}

Status SessionLeases::check(const std::string& session) const {
  const auto it = lapsed_.find(session);
  return it == lapsed_.end() ? ok_status() : it->second;
}

std::vector<std::pair<std::string, Status>> SessionLeases::take_lapsed(int64_t now_ns) {
  std::vector<std::pair<std::string, Status>> out;
  for (const auto& [session, known] : known_) {
    const int64_t silent = now_ns - known.heard_ns;
    if (known.lease_ns == 0 || silent < known.lease_ns) continue;
    out.emplace_back(
        session,
        aborted("the lease of session ", session, " on ", task_, " ran out at ", time_ago(0),
                ": its master was not heard of for ", silent / kNanosPerMilli, " ms, since ",
                time_ago(silent), " (the lease is ", known.lease_ns / kNanosPerMilli,
                " ms). What the session had there is gone; make a new session"));
  }
  for (const auto& [session, reason] : out) {
    known_.erase(session);
    lapsed_.emplace(session, reason);
    lapsed_order_.push_back(session);
    if (lapsed_order_.size() <= kRememberedSessions) continue;
    lapsed_.erase(lapsed_order_.front());
    lapsed_order_.pop_front();
  }
  return out;
}

int64_t SessionLeases::next_lapse_ns() const {
  int64_t next = INT64_MAX;
  for (const auto& [session, known] : known_) {
    if (known.lease_ns != 0) next = std::min(next, known.heard_ns + known.lease_ns);
  }
  return next;
}

int64_t SessionLeases::Known::left_ms(int64_t now_ns) const {
  if (lease_ns == 0) return -1;
  return std::max<int64_t>(0, heard_ns + lease_ns - now_ns) / kNanosPerMilli;
}

}  // namespace millrace
