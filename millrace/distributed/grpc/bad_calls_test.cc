#include "millrace/distributed/grpc/bad_calls.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(BadCalls, AreCountedByConnection) {
  BadCalls calls;
  const Status why(Code::kUnauthenticated, "no token");
  for (int i = 0; i < BadCalls::kMostOfAConnection; ++i) {
    EXPECT_EQ(calls.add("ipv4:10.0.0.7:40000", why), why);
  }
  EXPECT_EQ(calls.add("ipv4:10.0.0.7:40000", why).code(), Code::kResourceExhausted);
  EXPECT_EQ(calls.add("ipv4:10.0.0.7:40001", why), why);
}

TEST(BadCalls, AreForgottenWhenManyMoreCame) {
  BadCalls calls;
  const Status why(Code::kUnauthenticated, "no token");
  for (int i = 0; i < BadCalls::kMostOfAConnection; ++i) EXPECT_EQ(calls.add("first", why), why);
  EXPECT_NE(calls.add("first", why), why);
  for (size_t i = 0; i < BadCalls::kMostConnections; ++i) (void)calls.add(std::to_string(i), why);
  EXPECT_EQ(calls.add("first", why), why);
}

}  // namespace
}  // namespace millrace
