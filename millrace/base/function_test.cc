#include "millrace/base/function.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace millrace {
namespace {

int twice(FunctionRef<int(int)> f, int x) { return f(f(x)); }

TEST(FunctionRef, CallsWhatItBorrows) {
  int calls = 0;
  EXPECT_EQ(twice([&](int x) { return ++calls, x + 3; }, 1), 7);
  EXPECT_EQ(calls, 2);
}

TEST(UniqueFunction, HoldsSmallAndLargeCallables) {
  UniqueFunction<int(int)> small = [n = 2](int x) { return x * n; };
  EXPECT_EQ(small(4), 8);
  std::array<int, 100> many{};
  many[99] = 5;
  UniqueFunction<int(int)> large = [many](int x) { return x + many[99]; };
  EXPECT_EQ(large(1), 6);
  small = std::move(large);
  EXPECT_EQ(small(1), 6);
  EXPECT_FALSE(large);  // NOLINT(bugprone-use-after-move)
}

TEST(UniqueFunction, OwnsMoveOnlyStateAndEndsItOnce) {
  const std::shared_ptr<int> token = std::make_shared<int>(1);
  UniqueFunction<int()> f = [held = std::make_unique<int>(3), token] { return *held + *token; };
  EXPECT_EQ(token.use_count(), 2);
  UniqueFunction<int()> g = std::move(f);
  EXPECT_EQ(g(), 4);
  EXPECT_EQ(token.use_count(), 2);
  g = nullptr;
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(g);
}

}  // namespace
}  // namespace millrace
