#pragma once

#include <compare>
#include <cstdint>

namespace millrace {

// Nanoseconds since some fixed moment. Never goes back, and does not follow changes of the date.
int64_t monotonic_nanos();

// Microseconds since 1970-01-01 00:00 UTC, as the system's clock has it.
int64_t wall_micros();

// The moment by which something must be done, on the monotonic clock; by default never.
class Deadline {
 public:
  Deadline() = default;
  static Deadline none() { return Deadline(); }
  // `duration_ns` from now. Zero and below have expired already; what overflows is none().
  static Deadline after_nanos(int64_t duration_ns);
  static Deadline after_millis(int64_t duration_ms);

  bool is_none() const { return at_ns_ == kNever; }
  bool expired() const { return !is_none() && monotonic_nanos() >= at_ns_; }
  // 0 once expired; INT64_MAX for none().
  int64_t remaining_ns() const;
  // The moment in monotonic_nanos(); INT64_MAX for none().
  int64_t at_ns() const { return at_ns_; }

  // Earlier deadlines are smaller; none() is the greatest.
  friend auto operator<=>(const Deadline&, const Deadline&) = default;

 private:
  static constexpr int64_t kNever = INT64_MAX;
  int64_t at_ns_ = kNever;
};

}  // namespace millrace
