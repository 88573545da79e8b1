#include "millrace/base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace millrace {
namespace {

TEST(Clock, MonotonicDoesNotGoBack) {
  int64_t before = monotonic_nanos();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = monotonic_nanos();
    ASSERT_GE(now, before);
    before = now;
  }
}

TEST(Clock, WallIsTheDateInMicroseconds) {
  const int64_t before = std::time(nullptr);
  const int64_t now = wall_micros() / 1'000'000;
  EXPECT_GE(now + 1, before);
  EXPECT_LE(now, std::time(nullptr) + 1);
}

TEST(Deadline, NoneNeverExpires) {
  const Deadline none;
  EXPECT_TRUE(none.is_none());
  EXPECT_FALSE(none.expired());
  EXPECT_EQ(none.remaining_ns(), INT64_MAX);
}

TEST(Deadline, ExpiresAtItsMoment) {
  EXPECT_TRUE(Deadline::after_nanos(0).expired());
  EXPECT_TRUE(Deadline::after_nanos(-5).expired());
  EXPECT_EQ(Deadline::after_millis(-5).remaining_ns(), 0);
  const Deadline hour = Deadline::after_millis(3'600'000);
  EXPECT_FALSE(hour.expired());
  EXPECT_GT(hour.remaining_ns(), int64_t{3'000} * 1'000'000'000);
  EXPECT_LT(hour, Deadline::none());
  EXPECT_LT(Deadline::after_nanos(0), hour);
}

TEST(Deadline, WhatOverflowsIsNone) {
  EXPECT_TRUE(Deadline::after_nanos(INT64_MAX).is_none());
  EXPECT_TRUE(Deadline::after_millis(INT64_MAX).is_none());
  EXPECT_TRUE(Deadline::after_millis(INT64_MAX / 1'000'000).is_none());
}

}  // namespace
}  // namespace millrace
