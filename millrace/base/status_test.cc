#include "millrace/base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace millrace {
namespace {

TEST(Status, OkIsEmpty) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.to_string(), "OK");
}

TEST(Status, CarriesCodeAndMessage) {
  const Status status = invalid_argument("expected rank ", 2, ", got ", 3);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.to_string(), "INVALID_ARGUMENT: expected rank 2, got 3");
}

TEST(Status, CopiesAndMoves) {
  Status a = not_found("x");
  Status b = a;
  EXPECT_EQ(a, b);
  Status& alias = b;
  b = alias;
  EXPECT_EQ(b.message(), "x");
  b = Status();
  EXPECT_TRUE(b.ok());
  EXPECT_EQ(a.message(), "x");
  const Status c = std::move(a);
  EXPECT_EQ(c.message(), "x");
}

TEST(Status, AddsContextToErrorsOnly) {
  EXPECT_EQ(internal("broke").with_prefix("node 'a'").message(), "node 'a': broke");
  EXPECT_EQ(internal("broke").with_line("at f.py:3").message(), "broke\nat f.py:3");
  EXPECT_TRUE(Status().with_prefix("node").ok());
  EXPECT_TRUE(Status().with_line("line").ok());
}

TEST(Status, EveryCodeHasItsName) {
  EXPECT_EQ(code_name(Code::kOk), "OK");
  EXPECT_EQ(code_name(Code::kDeadlineExceeded), "DEADLINE_EXCEEDED");
  EXPECT_EQ(code_name(Code::kUnauthenticated), "UNAUTHENTICATED");
  EXPECT_EQ(code_name(static_cast<Code>(99)), "UNKNOWN");
}

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("expected an even number, got ", x);
  return x / 2;
}

Result<int> quarter(int x) {
  MR_TRY_ASSIGN(const int once, half(x));
  MR_TRY_ASSIGN(const int twice, half(once));
  return twice;
}

Status check_even(int x) {
  MR_TRY(half(x).status());
  return ok_status();
}

TEST(Status, LongMessagesKeepTheirStartAndEnd) {
  std::string list;
  for (int i = 0; i < 1'000'000; ++i) list += "\xc3\xa9,";  // a character of two bytes
  const Status status = invalid_argument("expected two sizes, got ", list)
                            .with_prefix("Op \"x\"")
                            .with_line("line 7");
  EXPECT_LT(status.message().size(), 70'000u);
  EXPECT_TRUE(status.message().starts_with("Op \"x\": expected two sizes, got \xc3\xa9,"));
  EXPECT_TRUE(status.message().ends_with("\xc3\xa9,\nline 7"));
  EXPECT_NE(status.message().find(" bytes left out] ..."), std::string_view::npos);
  // Never half a character.
  std::string_view rest = status.message();
  for (size_t at; (at = rest.find('\xa9')) != std::string_view::npos; rest.remove_prefix(at + 1)) {
    ASSERT_TRUE(at > 0 && rest[at - 1] == '\xc3');
  }
  EXPECT_EQ(rest.find('\xc3'), std::string_view::npos);
}

TEST(Result, HoldsValueOrError) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().message(), "expected an even number, got 3");
  EXPECT_TRUE(check_even(2).ok());
  EXPECT_FALSE(check_even(3).ok());
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, AssignsAcrossValueAndError) {
  Result<std::string> result("text");
  result = Result<std::string>(not_found("gone"));
  EXPECT_EQ(result.status().code(), Code::kNotFound);
  result = Result<std::string>("again");
  EXPECT_EQ(*result, "again");
  const Result<std::string> copy = result;
  EXPECT_EQ(*copy, *result);
}

TEST(ResultDeathTest, ValueOfAnErrorIsADefect) {
  const Result<int> result = internal("no");
  EXPECT_DEATH((void)result.value(), "INTERNAL: no");
}

}  // namespace
}  // namespace millrace
