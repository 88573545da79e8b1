// test-labels: threads
#include "millrace/base/timer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "millrace/base/clock.h"

namespace millrace {
namespace {

constexpr int64_t kMilli = 1'000'000;

TEST(ManualTimer, CallsWhatIsDueInOrderAndAtItsMoment) {
  Ref<ManualTimer> timer = make_ref<ManualTimer>();
  std::vector<std::pair<std::string, int64_t>> calls;
  const auto note = [&](std::string name) {
    return [&calls, timer, name] { calls.emplace_back(name, timer->now_ns()); };
  };
  timer->schedule(20, note("second"));
  timer->schedule(10, note("first"));
  const uint64_t taken_back = timer->schedule(15, note("never"));
  timer->schedule(10, [&] { timer->schedule(12, note("made later")); });
  timer->schedule(100, note("not yet"));
  EXPECT_TRUE(timer->remove(taken_back));
  EXPECT_FALSE(timer->remove(taken_back));
  timer->advance(50);
  using Calls = decltype(calls);
  EXPECT_EQ(calls, (Calls{{"first", 10}, {"second", 20}, {"made later", 22}}));
  EXPECT_EQ(timer->now_ns(), 50);
  EXPECT_EQ(timer->scheduled(), 1u);
  timer->advance(INT64_MAX);  // a moment that never comes is no overflow
  EXPECT_EQ(timer->scheduled(), 0u);
}

TEST(RealTimer, CallsTasksWhenTheirTimeHasCome) {
  struct Shared : RefCounted {
    Mutex mu;
    CondVar changed;
    std::vector<int> order MR_GUARDED_BY(mu);
  };
  const Ref<Shared> shared = make_ref<Shared>();
  const auto note = [&](int number) {
    return [shared, number] {
      MutexLock lock(shared->mu);
      shared->order.push_back(number);
      shared->changed.notify_all();
    };
  };
  const Ref<Timer>& timer = real_timer();
  const int64_t began = timer->now_ns();
  const uint64_t late = timer->schedule(3600'000 * kMilli, note(3));
  timer->schedule(30 * kMilli, note(2));
  timer->schedule(0, note(1));  // the thread sleeps for a later one already
  {
    MutexLock lock(shared->mu);
    while (shared->order.size() < 2) shared->changed.wait(shared->mu);
    EXPECT_EQ(shared->order, (std::vector<int>{1, 2}));
  }
  EXPECT_GE(timer->now_ns() - began, 30 * kMilli);
  EXPECT_TRUE(timer->remove(late));
}

}  // namespace
}  // namespace millrace
