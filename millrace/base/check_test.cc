#include "millrace/base/check.h"

#include <gtest/gtest.h>

#include "millrace/base/status.h"

namespace millrace {
namespace {

TEST(Check, PassesWhenTrueAndEvaluatesOnce) {
  int calls = 0;
  MR_CHECK(++calls == 1);
  EXPECT_EQ(calls, 1);
}

TEST(CheckDeathTest, NamesPlaceAndCondition) {
  EXPECT_DEATH(MR_CHECK(1 + 1 == 3), "check_test.cc:[0-9]+: check failed: 1 \\+ 1 == 3");
}

TEST(CheckDeathTest, EvaluatesAStatusOnce) {
  int calls = 0;
  auto fail = [&] { return ++calls == 1 ? not_found("first") : not_found("second"); };
  EXPECT_DEATH(MR_CHECK_OK(fail()), "NOT_FOUND: first");
}

TEST(CheckDeathTest, ShowsTheTextOfAStatus) {
  EXPECT_DEATH(MR_CHECK_OK(not_found("no such thing")), "NOT_FOUND: no such thing");
  EXPECT_DEATH((void)Result<int>(invalid_argument("seven")).value(), "INVALID_ARGUMENT: seven");
}

}  // namespace
}  // namespace millrace
