// test-labels: threads
#include "millrace/base/blocking_threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace millrace {
namespace {

constexpr int64_t kHour = int64_t{3600} * 1'000'000'000;

TEST(BlockingThreads, GrowsUntilNobodyWaitsForAThread) {
  constexpr int kTasks = 8;
  std::atomic<int> meeting{0};
  BlockingThreads threads(kHour);
  // Each waits for all: with fewer threads than tasks this would never end.
  for (int i = 0; i < kTasks; ++i) {
    threads.schedule([&] {
      ++meeting;
      while (meeting < kTasks) std::this_thread::yield();
    });
  }
  while (meeting < kTasks) std::this_thread::yield();
  EXPECT_EQ(threads.count(), size_t{kTasks});
}

TEST(BlockingThreads, ReusesAFreeThread) {
  BlockingThreads threads(kHour);
  std::thread::id first, second;
  for (std::thread::id* id : {&first, &second}) {
    std::atomic<bool> done{false};
    threads.schedule([&] {
      *id = std::this_thread::get_id();
      done = true;
    });
    while (!done) std::this_thread::yield();
    // Free again a moment after the task has ended.
    while (threads.idle_count() == 0) std::this_thread::yield();
  }
  EXPECT_EQ(first, second);
}

TEST(BlockingThreads, IdleThreadsEnd) {
  BlockingThreads threads(1'000'000);
  std::atomic<int> done{0};
  for (int i = 0; i < 4; ++i) threads.schedule([&] { ++done; });
  while (done < 4 || threads.count() > 0) std::this_thread::yield();
  threads.schedule([&] { ++done; });
  while (done < 5) std::this_thread::yield();
}

TEST(BlockingThreads, KeptThreadsStay) {
  BlockingThreads threads(0);
  threads.keep_threads();
  pid_t first = 0, second = 0;
  for (pid_t* id : {&first, &second}) {
    std::atomic<bool> done{false};
    threads.schedule([&] {
      *id = gettid();
      done = true;
    });
    while (!done || threads.idle_count() == 0) std::this_thread::yield();
  }
  EXPECT_EQ(first, second);
}

TEST(BlockingThreads, EndsAfterWhatTasksSchedule) {
  std::atomic<int> done{0};
  {
    BlockingThreads threads(kHour);
    threads.schedule([&] {
      for (int i = 0; i < 3; ++i) {
        threads.schedule([&] { threads.schedule([&] { ++done; }); });
      }
    });
  }
  EXPECT_EQ(done, 3);
}

TEST(BlockingThreads, SurvivesThreadsEndingWhileTasksCome) {
  std::atomic<int> done{0};
  {
    BlockingThreads threads(1'000);
    for (int i = 0; i < 500; ++i) threads.schedule([&] { ++done; });
  }
  EXPECT_EQ(done, 500);
}

}  // namespace
}  // namespace millrace
