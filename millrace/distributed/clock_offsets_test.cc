#include "millrace/distributed/clock_offsets.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

namespace millrace {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(ClockOffsets, TheMiddleOfWhatIsPossible) {
  const Ref<ClockOffsets> clocks = make_ref<ClockOffsets>();
  EXPECT_FALSE(clocks->estimate("a", 0).has_value());
  EXPECT_TRUE(clocks->add(
      "a", {.sent_ns = 1000, .received_ns = 51'200, .answered_ns = 51'900, .returned_ns = 2100}));
  const ClockOffset offset = clocks->estimate("a", 2100).value();
  EXPECT_EQ(offset.offset_ns, 50'000);
  EXPECT_EQ(offset.uncertainty_ns, 200);
  EXPECT_FALSE(clocks->estimate("b", 0).has_value());
}

TEST(ClockOffsets, TheShortestWayCountsUntilItIsOld) {
  const Ref<ClockOffsets> clocks = make_ref<ClockOffsets>();
  EXPECT_TRUE(clocks->add("a", {0, 100, 100, 200}));
  EXPECT_TRUE(clocks->add("a", {1 * kMs, 2 * kMs, 2 * kMs, 5 * kMs}));  // says less
  EXPECT_EQ(clocks->estimate("a", 5 * kMs)->offset_ns, 0);
  // A minute later the clocks may have drifted by 6 ms.
  EXPECT_EQ(clocks->estimate("a", 60'000 * kMs)->offset_ns, 0);
  EXPECT_EQ(clocks->estimate("a", 60'000 * kMs + 200)->uncertainty_ns, 100 + 6 * kMs);
  EXPECT_TRUE(clocks->add("a", {60'000 * kMs, 60'009 * kMs, 60'009 * kMs, 60'010 * kMs}));
  EXPECT_EQ(clocks->estimate("a", 60'010 * kMs)->offset_ns, 4 * kMs);
}

TEST(ClockOffsets, WhatCannotBeSaysNothing) {
  const Ref<ClockOffsets> clocks = make_ref<ClockOffsets>();
  const ClockSample samples[] = {
      {100, 50, 50, 0},                // back before it went
      {0, 50, 40, 100},                // answered before it came
      {0, 0, 1000, 100},               // took longer there than here
      {0, INT64_MIN, INT64_MAX, 100},  // of no clock
      {0, INT64_MAX, INT64_MAX, 100},
  };
  for (const ClockSample& sample : samples) EXPECT_FALSE(clocks->add("a", sample));
  EXPECT_FALSE(clocks->estimate("a", 100).has_value());
}

// Calls of random length over ways that are not the same there and back, to a clock that drifts.
TEST(ClockOffsets, TheTrueOffsetIsWithinTheUncertainty) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 200; ++round) {
    const Ref<ClockOffsets> clocks = make_ref<ClockOffsets>();
    const int64_t skew = between(-1000, 1000) * 1000 * kMs;
    const int64_t drift_ppm = between(-90, 90);
    const auto theirs = [&](int64_t ours) { return ours + skew + ours / 1'000'000 * drift_ppm; };
    int64_t now = between(0, 1000) * kMs;
    for (int call = 0; call < 50; ++call) {
      const int64_t sent = now;
      const int64_t received = sent + between(1'000, 3 * kMs);
      const int64_t answered = received + between(0, 100 * kMs);
      now = answered + between(1'000, 3 * kMs);
      EXPECT_TRUE(clocks->add("a", {sent, theirs(received), theirs(answered), now}));
      now += between(0, 2000 * kMs);
      const ClockOffset offset = clocks->estimate("a", now).value();
      const int64_t wrong = std::abs(offset.offset_ns - (theirs(now) - now));
      ASSERT_LE(wrong, offset.uncertainty_ns + 200) << "seed " << seed << " round " << round;
      ASSERT_LE(offset.uncertainty_ns, 3 * kMs + 250'000) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace millrace
