#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "millrace/base/status.h"

namespace millrace {

// The sessions that have something on a task, and until when each may have it. A session is kept as
// long as its master is heard of; one that was not heard of for as long as its lease is over for
// good, and the last 4096 such are remembered, so that who comes back is told why. Times are
// nanoseconds of the task's timer. Not thread-safe.
class SessionLeases {
 public:
  // No master asks for more: an hour.
  static constexpr int64_t kMaxLeaseMs = 3'600'000;

  explicit SessionLeases(std::string task) : task_(std::move(task)) {}

  // The session is heard of: it is known from now on, until `lease_ms` have passed; 0: until
  // drop(). ABORTED when its lease ran out before, INVALID_ARGUMENT for a lease that is negative or
  // beyond the limit.
  Status keep(const std::string& session, int64_t lease_ms, int64_t now_ns);
  // ABORTED, saying since when, for a session whose lease ran out; OK for all others.
  Status check(const std::string& session) const;
  void drop(const std::string& session) { known_.erase(session); }

  // Takes out the sessions whose lease has run out, each with what check() says from now on.
  std::vector<std::pair<std::string, Status>> take_lapsed(int64_t now_ns);
  // When the next lease runs out if nobody is heard of; INT64_MAX: none does.
  int64_t next_lapse_ns() const;

  struct Known {
    int64_t lease_ns = 0;  // 0: no end
    int64_t heard_ns = 0;
    // How much of the lease is left; -1: it has no end.
    int64_t left_ms(int64_t now_ns) const;
  };
  const std::unordered_map<std::string, Known>& known() const { return known_; }

 private:
  const std::string task_;
  std::unordered_map<std::string, Known> known_;
  std::unordered_map<std::string, Status> lapsed_;
  std::deque<std::string> lapsed_order_;  // oldest first
};

}  // namespace millrace
