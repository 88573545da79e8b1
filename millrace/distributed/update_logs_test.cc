#include "millrace/distributed/update_logs.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(UpdateLogsTest, AnotherTrySeesWhatTheFirstHasDone) {
  UpdateLogs logs;
  int64_t before = 0;
  const Ref<UpdateLog> first = logs.begin({7, 1}, 100, before).value();
  first->note("add");
  EXPECT_EQ(logs.begin({7, 1}, 101, before).status().code(), Code::kAborted);
  EXPECT_EQ(before, 100);
  logs.end({7, 1});
  const Ref<UpdateLog> second = logs.begin({7, 1}, 102, before).value();
  EXPECT_TRUE(second->made("add"));
  EXPECT_FALSE(second->made("other"));
  logs.end({7, 1});
  EXPECT_FALSE(logs.begin({7, 2}, 103, before).value()->made("add"));
  logs.end({7, 2});
  EXPECT_FALSE(logs.begin({8, 1}, 104, before).value()->made("add"));
}

TEST(UpdateLogsTest, ALogHasAnEnd) {
  const Ref<UpdateLog> log = make_ref<UpdateLog>();
  for (size_t i = 0; i < UpdateLog::kMaxChanges + 3; ++i) log->note(std::to_string(i));
  EXPECT_TRUE(log->made("0"));
  EXPECT_TRUE(log->made(std::to_string(UpdateLog::kMaxChanges - 1)));
  EXPECT_FALSE(log->made(std::to_string(UpdateLog::kMaxChanges)));
}

TEST(UpdateLogsTest, WhatComesLateIsRefused) {
  UpdateLogs logs;
  int64_t before = 0;
  ASSERT_TRUE(logs.begin({7, 5}, 100, before).ok());
  logs.end({7, 5});
  EXPECT_EQ(logs.begin({7, 4}, 101, before).status().code(), Code::kAborted);
  EXPECT_EQ(before, 0);
  EXPECT_EQ(logs.begin({-1, 4}, 101, before).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(logs.begin({1, -4}, 101, before).status().code(), Code::kInvalidArgument);
}

TEST(UpdateLogsTest, RemembersTheStreamsThatWereUsedLast) {
  UpdateLogs logs;
  int64_t before = 0;
  ASSERT_TRUE(logs.begin({1, 0}, 1, before).ok());  // and runs on
  const auto limit = static_cast<int64_t>(UpdateLogs::kMaxStreams);
  for (int64_t stream = 2; stream < limit + 10; ++stream) {
    logs.begin({stream, 3}, stream, before).value()->note("add");
    logs.end({stream, 3});
  }
  EXPECT_EQ(logs.num_streams(), UpdateLogs::kMaxStreams);
  EXPECT_FALSE(logs.begin({1, 0}, 2, before).ok());
  EXPECT_TRUE(logs.begin({limit, 3}, 3, before).value()->made("add"));
  EXPECT_FALSE(logs.begin({2, 3}, 4, before).value()->made("add"));  // forgotten
}

}  // namespace
}  // namespace millrace
