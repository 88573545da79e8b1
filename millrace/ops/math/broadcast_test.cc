#include "millrace/ops/math/broadcast.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

TEST(BroadcastPlan, MergesDimensionsThatBehaveAlike) {
  const Shape image{32, 28, 28, 3}, same = image, row{28, 3}, channel{3};
  EXPECT_EQ(BroadcastPlan::make({&image, &same})->run_length(), 32 * 28 * 28 * 3);
  EXPECT_EQ(BroadcastPlan::make({&image, &row})->run_length(), 28 * 3);
  EXPECT_EQ(BroadcastPlan::make({&image, &channel})->run_length(), 3);
  const Shape column{32, 28, 28, 1}, scalar{};
  EXPECT_EQ(BroadcastPlan::make({&image, &column})->step(1), 0);
  EXPECT_EQ(BroadcastPlan::make({&image, &scalar})->run_length(), 32 * 28 * 28 * 3);
}

TEST(BroadcastPlan, SaysHowOperandsRepeat) {
  const Shape a{4, 3}, row{3}, column{4, 1};
  const BroadcastPlan with_row = BroadcastPlan::make({&a, &row}).value();
  EXPECT_TRUE(with_row.dense(0));
  EXPECT_FALSE(with_row.dense(1));
  EXPECT_TRUE(with_row.repeats_every_run(1));
  EXPECT_FALSE(BroadcastPlan::make({&a, &column})->repeats_every_run(1));
}

TEST(BroadcastPlan, WalksAnyRange) {
  const Shape a{2, 1, 3}, b{4, 1}, c{3};
  const BroadcastPlan plan = BroadcastPlan::make({&a, &b, &c}).value();
  EXPECT_EQ(plan.shape(), (Shape{2, 4, 3}));
  for (int64_t begin = 0; begin <= 24; ++begin) {
    for (int64_t end = begin; end <= 24; ++end) {
      int64_t next = begin;
      plan.for_each_run(begin, end, [&](const int64_t* from, int64_t out, int64_t n) {
        EXPECT_EQ(out, next);
        for (int64_t i = 0; i < n; ++i) {
          const int64_t at = out + i;
          EXPECT_EQ(from[0] + i * plan.step(0), at / 12 * 3 + at % 3);
          EXPECT_EQ(from[1] + i * plan.step(1), at / 3 % 4);
          EXPECT_EQ(from[2] + i * plan.step(2), at % 3);
        }
        next += n;
      });
      EXPECT_EQ(next, end);
    }
  }
}

TEST(BroadcastPlan, ScalarsAndNothing) {
  const Shape scalar{}, none{0, 3}, row{3};
  int runs = 0;
  BroadcastPlan::make({&scalar, &scalar})
      ->for_each_run(0, 1,
                     [&](const int64_t*, int64_t, int64_t n) { runs += static_cast<int>(n); });
  EXPECT_EQ(runs, 1);
  const BroadcastPlan empty = BroadcastPlan::make({&none, &row}).value();
  EXPECT_EQ(empty.shape(), none);
  empty.for_each_run(0, 0, [](const int64_t*, int64_t, int64_t) { ADD_FAILURE(); });
}

TEST(BroadcastPlan, RefusesWhatDoesNotGoTogether) {
  const Shape a{2}, b{3};
  EXPECT_EQ(BroadcastPlan::make({&a, &b}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
