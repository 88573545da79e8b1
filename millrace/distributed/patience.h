#pragma once

#include <cstdint>
#include <string_view>

#include "millrace/base/status.h"

// How long silence is borne between tasks. One number, the others follow from it;
// docs/distributed.md has the table.

namespace millrace {

// A peer that says nothing for so long, while somebody waits for it, is lost: 2000, or
// MILLRACE_LOST_AFTER_MS in the environment (10 to 3,600,000).
int64_t lost_after_ms();

// A run that waits for other tasks for so long says so on stderr, and again each time it has waited
// twice as long: 30,000, or MILLRACE_REPORT_AFTER_MS in the environment (0: never).
int64_t report_after_ms();

// What a master that is not heard of for so long has on a task is dropped there.
constexpr int64_t lease_ms_for(int64_t lost_after) { return 3 * lost_after; }
// How often a master is heard of: six times in a lease, so that some may be lost or late.
constexpr int64_t beat_ms_for(int64_t lease) { return lease < 6 ? 1 : lease / 6; }

// A call whose connection was lost is made again so often where that is safe, the first time after
// 10 ms, then after four times as long as before: in 210 ms together, by default. A task goes on
// with what the lost one asked for until then, and some more.
inline constexpr int kMaxRepeats = 3;
constexpr int64_t repeat_after_ms(int64_t lost_after, int repeated) {
  return (lost_after << (2 * repeated)) / 200;
}
constexpr int64_t bear_loss_ms_for(int64_t lost_after) { return lost_after / 4; }

// The error of a peer that is lost since it said nothing for so long: UNAVAILABLE. No call to it is
// made again: it has heard nothing either, and whoever waits has waited long enough.
Status silent_peer(std::string_view peer, int64_t silent_ms);
bool is_silent_peer(const Status& status);

}  // namespace millrace
