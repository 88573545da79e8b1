#pragma once

#include <cstdint>

// How a step of the parallel gear counts what it waits for: one 64-bit word, changed by a single
// atomic addition per arrival, so that exactly one arrival finds the step ready.

namespace millrace::pending {

// An ordinary step waits for all of its inputs, data and control. Low half: inputs still missing;
// high half: dead ones so far.
constexpr uint64_t step_start(uint64_t inputs) { return inputs; }
constexpr uint64_t kArrival = ~uint64_t{0};                 // minus one
constexpr uint64_t kDeadArrival = (uint64_t{1} << 32) - 1;  // one more dead, one less missing
constexpr bool step_ready(uint64_t state) { return (state & 0xffffffff) == 0; }
constexpr bool step_dead(uint64_t state) { return (state >> 32) != 0; }

// A Merge waits for all control inputs, and for the first live or the last dead data input; of
// those that close a loop a dead one never comes, and is not counted. Three fields of 21 bits:
// control inputs missing, dead data inputs, live data inputs.
constexpr int kMaxMergeInputs = (1 << 20) - 1;
constexpr uint64_t merge_start(uint64_t controls) { return controls; }
constexpr uint64_t kMergeControl = ~uint64_t{0};
constexpr uint64_t kMergeDead = uint64_t{1} << 21;
constexpr uint64_t kMergeLive = uint64_t{1} << 42;
constexpr uint64_t merge_controls(uint64_t state) { return state & 0x1fffff; }
constexpr uint64_t merge_num_dead(uint64_t state) { return (state >> 21) & 0x1fffff; }
constexpr uint64_t merge_num_live(uint64_t state) { return state >> 42; }
constexpr bool merge_ready(uint64_t state, uint64_t inputs) {
  return merge_controls(state) == 0 &&
         (merge_num_live(state) > 0 || merge_num_dead(state) >= inputs);
}

}  // namespace millrace::pending
