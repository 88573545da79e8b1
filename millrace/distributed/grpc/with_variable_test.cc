// test-labels: threads
#include "millrace/distributed/grpc/library/with_variable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace millrace::grpc_library {
namespace {

// How often readers have looked, and whether what they look for was ever missing.
std::atomic<int> looks{0}, misses{0};

void wait_for_looks(int more) {
  const int until = looks + more;
  while (looks < until) std::this_thread::yield();
}

// One test, since it is for once in a process.
TEST(WithVariable, IsThereMeanwhileAndOthersMayRead) {
  ASSERT_EQ(setenv("MILLRACE_TEST_STAYS", "here", 1), 0);
  ASSERT_EQ(setenv("MILLRACE_TEST_CHANGES", "before", 1), 0);
  ASSERT_EQ(getenv("MILLRACE_TEST_MEANWHILE"), nullptr);
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!over) {
        const char* stays = getenv("MILLRACE_TEST_STAYS");
        if (stays == nullptr || std::string(stays) != "here") ++misses;
        ++looks;
      }
    });
  }
  wait_for_looks(100);
  static char variable[] = "MILLRACE_TEST_MEANWHILE=yes";
  with_variable(variable, [] {
    EXPECT_STREQ(getenv("MILLRACE_TEST_MEANWHILE"), "yes");
    wait_for_looks(1000);
    // As another thread might.
    EXPECT_EQ(setenv("MILLRACE_TEST_CHANGES", "after", 1), 0);
  });
  EXPECT_EQ(getenv("MILLRACE_TEST_MEANWHILE"), nullptr);
  EXPECT_STREQ(getenv("MILLRACE_TEST_CHANGES"), "after");
  wait_for_looks(1000);
  over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(misses, 0);
  // The environment goes on as ever.
  EXPECT_EQ(setenv("MILLRACE_TEST_LATER", "too", 1), 0);
  EXPECT_STREQ(getenv("MILLRACE_TEST_LATER"), "too");
  EXPECT_STREQ(getenv("MILLRACE_TEST_STAYS"), "here");
}

}  // namespace
}  // namespace millrace::grpc_library
