// test-labels: threads
#include "millrace/base/loop_threads.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "millrace/base/function.h"

namespace millrace {
namespace {

// What a loop takes with so many threads.
using Model = FunctionRef<int64_t(int threads)>;

// Runs the loop so often; how many runs had each number of threads.
std::vector<int> runs_by_threads(LoopThreads& threads, uint64_t loop, int most, int runs,
                                 Model model) {
  std::vector<int> out(static_cast<size_t>(most) + 1);
  for (int i = 0; i < runs; ++i) {
    const LoopThreads::Choice choice = threads.choose(loop, most);
    EXPECT_GE(choice.threads, 1);
    EXPECT_LE(choice.threads, most);
    ++out[static_cast<size_t>(choice.threads)];
    threads.took(choice, model(choice.threads));
  }
  return out;
}

// Work that is divided, and a cost for each helper.
auto divided(int64_t work, int64_t helper) {
  return [=](int threads) { return work / threads + helper * (threads - 1); };
}

TEST(LoopThreads, BeginsWithAll) {
  LoopThreads threads;
  EXPECT_EQ(threads.choose(1, 6).threads, 6);
  EXPECT_EQ(threads.choose(2, 4096).threads, 4096);
}

TEST(LoopThreads, FindsThatOneIsQuicker) {
  LoopThreads threads;
  runs_by_threads(threads, 1, 2, 256, divided(30'000, 20'000));
  const auto runs = runs_by_threads(threads, 1, 2, 6400, divided(30'000, 20'000));
  EXPECT_GT(runs[1], 5900);
}

TEST(LoopThreads, KeepsAllWhereThatPays) {
  LoopThreads threads;
  const auto runs = runs_by_threads(threads, 1, 16, 6400, divided(4'000'000, 3'000));
  EXPECT_GT(runs[16], 5900);
  // Nothing far off is ever tried.
  EXPECT_EQ(runs[4] + runs[2] + runs[1], 0);
}

TEST(LoopThreads, FindsTheBestInBetween) {
  LoopThreads threads;
  runs_by_threads(threads, 1, 16, 640, divided(100'000, 7'000));
  const auto runs = runs_by_threads(threads, 1, 16, 6400, divided(100'000, 7'000));
  EXPECT_GT(runs[4], 5900);
}

TEST(LoopThreads, TakesFewerThreadsOfTwoThatTakeTheSame) {
  LoopThreads threads;
  runs_by_threads(threads, 1, 3, 640, [](int) { return 50'000; });
  EXPECT_GT(runs_by_threads(threads, 1, 3, 6400, [](int) { return 50'000; })[1], 5900);
}

TEST(LoopThreads, FollowsWhenTimesChange) {
  LoopThreads threads;
  const auto paying = divided(60'000, 3'000), costing = divided(60'000, 60'000);
  for (int round = 0; round < 3; ++round) {
    runs_by_threads(threads, 1, 2, 6400, paying);
    EXPECT_GT(runs_by_threads(threads, 1, 2, 6400, paying)[2], 5900);
    runs_by_threads(threads, 1, 2, 6400, costing);
    EXPECT_GT(runs_by_threads(threads, 1, 2, 6400, costing)[1], 5900);
  }
}

TEST(LoopThreads, OneSlowRunChangesNothing) {
  LoopThreads threads;
  const auto model = divided(100'000, 3'000);
  runs_by_threads(threads, 1, 2, 640, model);
  runs_by_threads(threads, 1, 2, 1, [](int) { return 20'000'000; });
  EXPECT_GT(runs_by_threads(threads, 1, 2, 6400, model)[2], 5900);
}

// To share one loop alone is dear here, and to share them all is not.
TEST(LoopThreads, LoopsFindOutTogether) {
  LoopThreads threads;
  bool awake = false;
  int shared = 0;
  constexpr int kRuns = 64'000;
  for (int i = 0; i < kRuns; ++i) {
    const LoopThreads::Choice choice = threads.choose(static_cast<uint64_t>(i) % 10, 2);
    const bool slow = i < 6400;  // the other processor is busy at first
    const int64_t nanos = choice.threads == 1 ? 30'000 : (slow ? 80'000 : awake ? 16'000 : 40'000);
    threads.took(choice, nanos);
    awake = choice.threads == 2;
    shared += i >= kRuns - 6400 && awake;
  }
  EXPECT_GT(shared, 6000);
}

TEST(LoopThreads, TellsLoopsApartAndHowManyThreadsTheyMayHave) {
  LoopThreads threads;
  runs_by_threads(threads, 1, 2, 200, divided(30'000, 60'000));
  EXPECT_EQ(threads.choose(2, 2).threads, 2);
  EXPECT_EQ(threads.choose(1, 4).threads, 4);
}

TEST(LoopThreads, ForgetsWhereThereAreTooMany) {
  LoopThreads threads;
  for (uint64_t loop = 0; loop < 20'000; ++loop) {
    runs_by_threads(threads, loop * loop, 8, 3, divided(50'000, 1'000));
  }
  runs_by_threads(threads, 7, 2, 640, divided(30'000, 60'000));
  EXPECT_GT(runs_by_threads(threads, 7, 2, 6400, divided(30'000, 60'000))[1], 5900);
}

TEST(LoopThreads, ServesAllThreadsAtOnce) {
  LoopThreads threads;
  std::vector<std::thread> users;
  for (uint64_t t = 0; t < 4; ++t) {
    users.emplace_back([&threads, t] {
      for (uint64_t i = 0; i < 500; ++i) {
        runs_by_threads(threads, (i + t) % 7 * 1000, 5, 3, divided(50'000, 1'000));
        runs_by_threads(threads, i * 4 + t, 5, 2, divided(50'000, 1'000));
      }
    });
  }
  for (std::thread& user : users) user.join();
}

}  // namespace
}  // namespace millrace
