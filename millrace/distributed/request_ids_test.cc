#include "millrace/distributed/request_ids.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(RequestIds, RepeatsTheAnswersOfWhatWasFinished) {
  RequestIds ids;
  EXPECT_FALSE(ids.begin(7, 1).value().has_value());
  EXPECT_EQ(ids.begin(7, 1).status().code(), Code::kAborted);  // under way
  ids.finish(7, std::string("answer"));
  EXPECT_EQ(ids.begin(7, 1).value(), "answer");
  EXPECT_EQ(ids.begin(7, 2).status().code(), Code::kInvalidArgument);
}

TEST(RequestIds, ForgetsWhatFailed) {
  RequestIds ids;
  EXPECT_FALSE(ids.begin(7, 1).value().has_value());
  ids.finish(7, invalid_argument("no"));
  EXPECT_FALSE(ids.begin(7, 2).value().has_value());
}

TEST(RequestIds, TakesRequestsWithoutANumberAsTheyCome) {
  RequestIds ids;
  EXPECT_FALSE(ids.begin(0, 1).value().has_value());
  ids.finish(0, std::string("answer"));
  EXPECT_FALSE(ids.begin(0, 1).value().has_value());
}

TEST(RequestIds, KeepsTheLastOnes) {
  RequestIds ids(2);
  for (const int64_t id : {1, 2, 3}) EXPECT_FALSE(ids.begin(id, 0).value().has_value());
  EXPECT_FALSE(ids.begin(2, 0).ok());
  EXPECT_FALSE(ids.begin(1, 0).value().has_value());  // forgotten, and 2 is now
  EXPECT_FALSE(ids.begin(3, 0).ok());
  ids.finish(1, std::string("late"));
  ids.finish(2, std::string("too late"));
  EXPECT_FALSE(ids.begin(2, 0).value().has_value());
}

}  // namespace
}  // namespace millrace
