// test-labels: threads
#include "millrace/kernel/step.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "millrace/base/thread_pool.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

TEST(Step, EndsWithItsLastPart) {
  Ref<Step> step = Step::make_shared(1);
  int ended = 0;
  step->begin(2, [&](Step& s) {
    EXPECT_EQ(&s, step.get());
    ++ended;
  });
  step->end_part();
  EXPECT_EQ(ended, 0);
  EXPECT_FALSE(step->wait(Deadline::after_nanos(0)));
  step->end_part();
  EXPECT_EQ(ended, 1);
  EXPECT_TRUE(step->wait());
  EXPECT_TRUE(step->status().ok());
}

TEST(Step, WithoutPartsItIsOverAtOnce) {
  Ref<Step> step = Step::make_shared(1);
  step->begin(0, nullptr);
  EXPECT_TRUE(step->wait(Deadline::after_nanos(0)));
}

TEST(Step, TheFirstErrorStopsEverything) {
  Ref<Step> step = Step::make_shared(1);
  step->begin(1, nullptr);
  EXPECT_FALSE(step->stopped());
  Status received;
  step->rendezvous->recv("key", step->cancel, [&](Status s, const Value&) { received = s; });
  step->fail_at_end(invalid_argument("a dead fetch"));
  EXPECT_TRUE(step->error().ok());
  step->fail(aborted("first"));
  step->fail(internal("second"));
  EXPECT_TRUE(step->stopped());
  EXPECT_EQ(received.code(), Code::kAborted);
  EXPECT_EQ(step->cancel->status().code(), Code::kAborted);
  step->end_part();
  EXPECT_EQ(step->status().message(), "first");
}

TEST(Step, OnceBegunItCanBeStopped) {
  Ref<Step> step = make_ref<Step>(1);
  EXPECT_FALSE(step->cancel);
  step->begin(1, nullptr);
  step->fail(aborted("first"));
  EXPECT_TRUE(step->stopped());
  step->end_part();
  EXPECT_EQ(step->status().message(), "first");
}

TEST(Step, AnErrorThatLetsTheRestRunIsToldAtTheEnd) {
  Ref<Step> step = Step::make_shared(1);
  step->begin(1, nullptr);
  step->fail_at_end(invalid_argument("a dead fetch"));
  EXPECT_FALSE(step->stopped());
  step->end_part();
  EXPECT_EQ(step->status().message(), "a dead fetch");
}

TEST(Step, FallsWithItsParent) {
  Ref<CancellationToken> closing = make_ref<CancellationToken>();
  Ref<Step> step = Step::make_shared(1, closing);
  closing->cancel(cancelled("closing"));
  EXPECT_TRUE(step->stopped());
  EXPECT_EQ(step->error().message(), "closing");
}

TEST(Step, TheEndMayDropTheLastReference) {
  Ref<Step> step = Step::make_shared(1);
  Step* bare = step.get();
  bare->begin(1, [held = std::move(step)](Step&) mutable { held = nullptr; });
  bare->end_part();
}

// Every task is run, never more than the cap at once, whoever schedules them.
TEST(Step, TasksKeepToTheCap) {
  ThreadPool pool(4);
  for (int cap : {1, 2, 3}) {
    Ref<Step> step = Step::make_shared(1);
    step->pool = &pool;
    step->max_threads = cap;
    std::atomic<int> now{0}, most{0}, ran{0};
    constexpr int kTasks = 300;
    step->begin(kTasks, nullptr);
    auto task = [&] {
      const int running = now.fetch_add(1) + 1;
      int seen = most.load();
      while (seen < running && !most.compare_exchange_weak(seen, running)) {
      }
      ran.fetch_add(1);
      std::this_thread::yield();
      now.fetch_sub(1);
      step->end_part();
    };
    step->run_here([&] {
      for (int i = 0; i < kTasks / 2; ++i) step->schedule(task);
    });
    for (int i = kTasks / 2; i < kTasks; ++i) step->schedule(task);
    step->wait();
    EXPECT_EQ(ran.load(), kTasks);
    EXPECT_LE(most.load(), cap);
  }
}

}  // namespace
}  // namespace millrace
