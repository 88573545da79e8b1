// test-labels: threads
#include "millrace/base/thread_pool.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/clock.h"

namespace millrace {
namespace {

constexpr double kMicro = 1'000;

int threads_of_process() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

TEST(ThreadPool, RunsTasksOnWorkers) {
  ThreadPool pool(3);
  EXPECT_EQ(pool.size(), 3);
  EXPECT_FALSE(pool.on_worker());
  EXPECT_TRUE(pool.check_usable().ok());
  std::latch done(100);
  std::atomic<int> on_worker{0};
  for (int i = 0; i < 100; ++i) {
    pool.schedule([&] {
      on_worker += pool.on_worker();
      done.count_down();
    });
  }
  done.wait();
  EXPECT_EQ(on_worker, 100);
}

TEST(ThreadPool, StartsThreadsWithTheFirstTask) {
  const int before = threads_of_process();
  ThreadPool pool(2);
  EXPECT_EQ(threads_of_process(), before);
  std::latch done(1);
  pool.schedule([&] { done.count_down(); });
  done.wait();
  EXPECT_EQ(threads_of_process(), before + 2);
}

TEST(ThreadPool, TasksRunAtTheSameTime) {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads);
  // Each waits for all the others: this ends only if every task has a thread of its own, so no
  // wake-up may be lost. Repeated, so that workers are met spinning, falling asleep and asleep.
  for (int round = 0; round < 200; ++round) {
    std::latch meeting(kThreads);
    std::latch done(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      pool.schedule([&] {
        meeting.arrive_and_wait();
        done.count_down();
      });
    }
    done.wait();
  }
}

TEST(ThreadPool, OthersStealWhatABusyWorkerScheduled) {
  ThreadPool pool(2);
  std::latch done(1);
  pool.schedule([&] {
    std::latch child(1);
    pool.schedule([&] { child.count_down(); });
    child.wait();
    done.count_down();
  });
  done.wait();
}

TEST(ThreadPool, DestructorRunsWhatWasScheduledAndWhatThatSchedules) {
  std::atomic<int> done{0};
  {
    ThreadPool pool(2);
    for (int i = 0; i < 50; ++i) {
      pool.schedule([&] {
        pool.schedule_blocking([&] { pool.schedule([&] { ++done; }); });
        pool.schedule([&] { ++done; });
      });
    }
  }
  EXPECT_EQ(done, 100);
  { ThreadPool never_used(4); }
  {
    ThreadPool pool(2);
    pool.schedule_blocking([&] { pool.schedule([&] { ++done; }); });
  }
  EXPECT_EQ(done, 101);
}

TEST(ThreadPool, EndsWhateverTheWorkersAreDoing) {
  std::atomic<int> done{0};
  for (int round = 0; round < 300; ++round) {
    ThreadPool pool(4);
    for (int i = 0; i < round % 5; ++i) pool.schedule([&] { ++done; });
    pool.parallel_for(round % 7, 1e5, [&](int64_t, int64_t) { ++done; });
  }
  EXPECT_GT(done, 600);
}

TEST(ThreadPool, BlockingTasksDoNotHoldWorkers) {
  ThreadPool pool(1);
  std::latch go(1), all(4);
  for (int i = 0; i < 3; ++i) {
    pool.schedule_blocking([&] {
      EXPECT_FALSE(pool.on_worker());
      go.wait();
      all.count_down();
    });
  }
  pool.schedule([&] {
    go.count_down();
    all.count_down();
  });
  all.wait();
}

TEST(ThreadPool, WithoutThreadsRunsWhatItIsToldInOrder) {
  std::string order;
  {
    ThreadPool pool{ThreadPool::WithoutThreads()};
    EXPECT_EQ(pool.size(), 1);
    pool.schedule([&] {
      order += 'a';
      pool.schedule([&] { order += 'c'; });
    });
    pool.schedule_blocking([&] { order += 'b'; });
    EXPECT_EQ(order, "");
    EXPECT_TRUE(pool.run_one());
    EXPECT_EQ(order, "a");
    EXPECT_TRUE(pool.run_one());
    EXPECT_TRUE(pool.run_one());
    EXPECT_EQ(order, "abc");
    EXPECT_FALSE(pool.run_one());
    pool.parallel_for(100, 1e6, [&](int64_t begin, int64_t) { order += begin == 0 ? "l" : ""; });
    EXPECT_EQ(order, "abcl");
    pool.schedule([&] { order += 'd'; });
  }
  EXPECT_EQ(order, "abcld");  // nothing that was scheduled is lost
  EXPECT_FALSE(ThreadPool::global().run_one());
}

TEST(ThreadPool, DropsATasksStateWhenItHasRun) {
  ThreadPool pool(1);
  auto state = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = state;
  pool.schedule([state = std::move(state)] {});
  while (!watch.expired()) std::this_thread::yield();
}

// The ranges of a loop, sorted.
std::set<std::pair<int64_t, int64_t>> ranges_of(ThreadPool& pool, int64_t n, double cost,
                                                int max_threads = 1 << 20) {
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> ranges;
  pool.parallel_for(
      n, cost,
      [&](int64_t begin, int64_t end) {
        std::lock_guard lock(mutex);
        EXPECT_TRUE(ranges.emplace(begin, end).second);
      },
      max_threads);
  return ranges;
}

TEST(ParallelFor, CoversEveryIndexOnce) {
  ThreadPool pool(3);
  for (const int64_t n :
       {int64_t{1}, int64_t{2}, int64_t{1000}, int64_t{1'000'003}, int64_t{1} << 40, INT64_MAX}) {
    for (const double cost : {0.0, 1e-3, 1.0, 1e3, 1e6, 1e300, double{INFINITY}}) {
      int64_t next = 0;
      for (const auto& [begin, end] : ranges_of(pool, n, cost)) {
        EXPECT_EQ(begin, next);
        EXPECT_LT(begin, end);
        next = end;
      }
      EXPECT_EQ(next, n) << "cost " << cost;
    }
  }
}

TEST(ParallelFor, CutsOnlyByNumberAndCost) {
  ThreadPool one(1), four(4);
  for (const int64_t n : {int64_t{7}, int64_t{100'000}, int64_t{12'345'678}}) {
    for (const double cost : {1.0, 50.0, 1e5}) {
      const auto ranges = ranges_of(four, n, cost);
      EXPECT_EQ(ranges_of(one, n, cost), ranges);
      EXPECT_EQ(ranges_of(four, n, cost, 1), ranges);
      EXPECT_EQ(ranges_of(four, n, cost, 2), ranges);
    }
  }
}

TEST(ParallelFor, CutsTheSameWhateverWasLearned) {
  ThreadPool pool(4);
  const auto ranges = ranges_of(pool, 100'000, 10.0);
  EXPECT_GT(ranges.size(), 10u);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(ranges_of(pool, 100'000, 10.0), ranges);
}

TEST(ParallelFor, SmallLoopsRunOnTheCallerAsOneRange) {
  ThreadPool pool(2);
  const int before = threads_of_process();
  EXPECT_EQ(ranges_of(pool, 100, 1.0), (std::set<std::pair<int64_t, int64_t>>{{0, 100}}));
  EXPECT_EQ(ranges_of(pool, 100, NAN), (std::set<std::pair<int64_t, int64_t>>{{0, 100}}));
  EXPECT_EQ(ranges_of(pool, 100, -1.0), (std::set<std::pair<int64_t, int64_t>>{{0, 100}}));
  EXPECT_TRUE(ranges_of(pool, 0, 1e9).empty());
  EXPECT_TRUE(ranges_of(pool, -5, 1e9).empty());
  EXPECT_EQ(threads_of_process(), before);
}

TEST(ParallelFor, RangesAreWorthTheirWhile) {
  ThreadPool pool(2);
  for (const auto& [begin, end] : ranges_of(pool, 1'000'000, 10.0)) {
    if (end == 1'000'000) continue;
    EXPECT_GE(static_cast<double>(end - begin) * 10.0, 10 * kMicro);
  }
  EXPECT_LE(ranges_of(pool, int64_t{1} << 40, 1e6).size(), 4096u);
}

TEST(ParallelFor, UsesUpToTheThreadsAllowed) {
  ThreadPool pool(3);
  // As many ranges as threads, each of which waits for all.
  std::latch meeting(3);
  std::atomic<int> ranges{0};
  pool.parallel_for(3, 1e6, [&](int64_t, int64_t) {
    ++ranges;
    meeting.arrive_and_wait();
  });
  EXPECT_EQ(ranges, 3);

  std::mutex mutex;
  std::set<std::thread::id> ids;
  pool.parallel_for(
      500, 100 * kMicro,
      [&](int64_t, int64_t) {
        std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      },
      2);
  EXPECT_LE(ids.size(), 2u);

  // With the caller as many as the pool has.
  ids.clear();
  pool.parallel_for(500, 100 * kMicro, [&](int64_t, int64_t) {
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_LE(ids.size(), 3u);
}

TEST(ParallelFor, NestsOnWorkersAndCallers) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  pool.parallel_for(8, 1e6, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pool.parallel_for(100, 1e5, [&](int64_t b, int64_t e) {
        pool.parallel_for(e - b, 1e5, [&](int64_t bb, int64_t ee) { sum += ee - bb; });
      });
    }
  });
  EXPECT_EQ(sum, 800);
}

TEST(ParallelFor, RunsOnlyItsOwnRangesWhileItWaits) {
  ThreadPool pool(1);
  std::latch done(1);
  bool inside = false;
  pool.schedule([&] {
    inside = true;
    // Runs on the same worker; inside the loop, if the loop ran other tasks.
    pool.schedule([&] {
      EXPECT_FALSE(inside);
      done.count_down();
    });
    pool.parallel_for(100, 1e5, [](int64_t, int64_t) {});
    inside = false;
  });
  done.wait();
}

// The same share comes first in every loop; then those of threads that are busy elsewhere.
TEST(ParallelFor, AThreadBeginsWithAShareOfItsOwn) {
  std::atomic<int> busy{0};
  std::atomic<bool> go_on{false};
  ThreadPool pool(2);  // ends before what its threads wait for
  for (int i = 0; i < 2; ++i) {
    pool.schedule([&] {
      ++busy;
      busy.notify_all();
      go_on.wait(false);
    });
  }
  for (int n = busy; n < 2; n = busy) busy.wait(n);
  for (int round = 0; round < 2; ++round) {
    std::vector<int64_t> begins;
    pool.parallel_for(300, 1e5, [&](int64_t begin, int64_t) { begins.push_back(begin); });
    ASSERT_EQ(begins.size(), 300u);
    EXPECT_EQ(begins.front(), 150);
    std::rotate(begins.begin(), begins.begin() + 150, begins.end());
    EXPECT_TRUE(std::is_sorted(begins.begin(), begins.end()));
  }
  go_on = true;
  go_on.notify_all();
}

TEST(ParallelFor, StopsStartingRangesWhenCancelled) {
  ThreadPool pool(2);
  Ref<CancellationToken> token = make_ref<CancellationToken>();
  std::atomic<int> ranges{0};
  pool.parallel_for(
      4096, 1e6,
      [&](int64_t, int64_t) {
        ++ranges;
        token->cancel(cancelled("enough"));
      },
      1 << 20, token.get());
  EXPECT_GE(ranges, 1);
  EXPECT_LE(ranges, 3);
  ranges = 0;
  pool.parallel_for(5, 1.0, [&](int64_t, int64_t) { ++ranges; }, 1 << 20, token.get());
  EXPECT_EQ(ranges, 0);
}

TEST(ParallelFor, CancelledFromOutsideAtAnyMoment) {
  ThreadPool pool(2);
  for (int round = 0; round < 100; ++round) {
    Ref<CancellationToken> token = make_ref<CancellationToken>();
    std::latch started(1);
    std::atomic<bool> first{true};
    std::thread canceller([&] {
      started.wait();
      token->cancel(cancelled("stop"));
    });
    std::atomic<bool> inside{true};
    pool.parallel_for(
        2000, 1e6,
        [&](int64_t, int64_t) {
          EXPECT_TRUE(inside);
          if (first.exchange(false)) started.count_down();
        },
        1 << 20, token.get());
    inside = false;
    canceller.join();
  }
}

TEST(ThreadPool, SurvivesRandomNestedWork) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::atomic<int64_t> made{0}, done{0};
  {
    ThreadPool pool(3);
    struct Maker {
      ThreadPool& pool;
      std::atomic<int64_t>&made, &done;
      void operator()(unsigned state, int depth) const {
        std::minstd_rand random(state);
        random.discard(2);
        const auto spawn = [&](unsigned s) {
          ++made;
          UniqueFunction<void()> task = [*this, s, depth] {
            (*this)(s, depth - 1);
            ++done;
          };
          if (s % 8 == 0) {
            pool.schedule_blocking(std::move(task));
          } else {
            pool.schedule(std::move(task));
          }
        };
        if (depth == 0) return;
        for (unsigned i = random() % 4; i > 0; --i) spawn(static_cast<unsigned>(random()));
        if (random() % 3 == 0) {
          const int64_t n = static_cast<int64_t>(random() % 64);
          std::atomic<int64_t> covered{0};
          pool.parallel_for(n, 2e4, [&](int64_t b, int64_t e) {
            covered += e - b;
            if (b % 16 == 0) spawn(static_cast<unsigned>(b + depth));
          });
          EXPECT_EQ(covered, n);
        }
      }
    };
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (unsigned i = 0; i < 50; ++i) Maker{pool, made, done}(seed + 1000 * t + i, 4);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(made, done);
  EXPECT_GT(made, 100);
}

// The CPU time of the whole process.
int64_t cpu_nanos() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

TEST(ThreadPool, IdleUsesNoCpu) {
  ThreadPool pool(4);
  pool.parallel_for(100, 1e6, [](int64_t, int64_t) {});
  // Four spinning workers would use the whole interval; blocked ones come to rest within
  // microseconds. Other processes can only make the interval longer.
  int64_t used = 0;
  constexpr int64_t kInterval = 20'000'000;
  for (int attempt = 0; attempt < 50; ++attempt) {
    const int64_t before = cpu_nanos();
    const int64_t until = monotonic_nanos() + kInterval;
    while (monotonic_nanos() < until) poll(nullptr, 0, 20);
    used = cpu_nanos() - before;
    if (used < kInterval / 20) return;
  }
  FAIL() << "an idle pool used " << used << " of " << kInterval << " ns";
}

// Runs `body` in a forked child and returns its exit status; what hangs is killed.
int in_child(FunctionRef<int()> body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ThreadPoolFork, TheChildIsToldAndNeverHangs) {
  ThreadPool& pool = ThreadPool::global();
  std::latch done(1);
  pool.schedule([&] { done.count_down(); });
  done.wait();
  EXPECT_EQ(in_child([&] {
              const Status status = ThreadPool::global().check_usable();
              if (status.code() != Code::kFailedPrecondition) return 1;
              if (status.message().find("fork") == std::string_view::npos) return 2;
              int calls = 0;
              pool.schedule([&] { ++calls; });
              pool.schedule_blocking([&] { ++calls; });
              int64_t covered = 0;
              pool.parallel_for(1000, 1e6, [&](int64_t b, int64_t e) { covered += e - b; });
              if (calls != 2) return 3;
              return covered == 1000 ? 0 : 4;
            }),
            0);
  EXPECT_TRUE(pool.check_usable().ok());
}

TEST(ThreadPoolFork, TheChildMayForgetThePool) {
  auto pool = std::make_unique<ThreadPool>(2);
  std::latch done(1);
  pool->schedule([&] { done.count_down(); });
  done.wait();
  EXPECT_EQ(in_child([&] {
              pool = nullptr;
              return 0;
            }),
            0);
}

TEST(ThreadPoolFork, AtAnyMomentOfTheParent) {
  ThreadPool pool(2);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      pool.parallel_for(50, 1e5, [&](int64_t, int64_t) { pool.schedule([] {}); });
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([&] {
                pool.parallel_for(50, 1e5, [](int64_t, int64_t) {});
                return pool.check_usable().ok() ? 1 : 0;
              }),
              0);
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace millrace
