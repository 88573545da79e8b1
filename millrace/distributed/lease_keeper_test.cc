// test-labels: threads
#include "millrace/distributed/lease_keeper.h"

#include <gtest/gtest.h>

#include "millrace/distributed/direct_worker.h"
#include "millrace/distributed/distributed_testing.h"

namespace millrace {
namespace {

constexpr int64_t kMilli = 1'000'000;

class LeaseKeeperTest : public testing::Test {
 protected:
  LeaseKeeperTest() {
    EXPECT_TRUE(workers_->add("task", worker_).ok());
    EXPECT_TRUE(workers_->add("other", other_).ok());
    worker_->kept_answer = other_->kept_answer = ok_status();
    keeper_ = make_ref<LeaseKeeper>(workers_, "s", 600, timer_);
  }
  ~LeaseKeeperTest() override { keeper_->stop(); }

  Ref<ManualTimer> timer_ = make_ref<ManualTimer>();
  Ref<WorkerCache> workers_ = make_ref<WorkerCache>();
  Ref<SilentWorker> worker_ = make_ref<SilentWorker>(), other_ = make_ref<SilentWorker>();
  Ref<LeaseKeeper> keeper_;
};

TEST_F(LeaseKeeperTest, TellsATaskAtOnceAndSixTimesInALease) {
  EXPECT_EQ(keeper_->keep("task", 7), 600);
  ASSERT_EQ(worker_->kept.size(), 1u);
  EXPECT_EQ(worker_->kept[0].session, "s");
  EXPECT_EQ(worker_->kept[0].lease_ms, 600);
  EXPECT_EQ(worker_->kept[0].incarnation, 7u);
  timer_->advance(600 * kMilli);
  EXPECT_EQ(worker_->kept.size(), 7u);
  EXPECT_TRUE(other_->kept.empty()) << "it is not used";
  EXPECT_EQ(keeper_->keep("task", 7), 600);
  EXPECT_EQ(worker_->kept.size(), 7u) << "it is kept already";
  keeper_->stop();
  timer_->advance(6000 * kMilli);
  EXPECT_EQ(worker_->kept.size(), 7u);
  EXPECT_EQ(timer_->scheduled(), 0u);
}

TEST_F(LeaseKeeperTest, ATaskOfThisProcessNeedsNone) {
  const Ref<WorkerInterface> here =
      make_direct_worker([] { return Result<Ref<Worker>>(unavailable("not asked")); });
  ASSERT_TRUE(workers_->add("here", here).ok());
  EXPECT_EQ(keeper_->keep("here", 1), 0);
  EXPECT_EQ(timer_->scheduled(), 0u);
}

TEST_F(LeaseKeeperTest, ASilentTaskIsAskedOnceAndHoldsUpNobody) {
  worker_->kept_answer.reset();
  keeper_->keep("task", 1);
  keeper_->keep("other", 2);
  timer_->advance(600 * kMilli);
  EXPECT_EQ(worker_->kept.size(), 1u);
  EXPECT_EQ(other_->kept.size(), 7u);
}

// A lost task may come back; one that has dropped the session, or has restarted, will not.
TEST_F(LeaseKeeperTest, OnlyAnEndIsFinal) {
  worker_->kept_answer = unavailable("lost");
  other_->kept_answer = aborted("the lease ran out");
  keeper_->keep("task", 1);
  keeper_->keep("other", 2);
  EXPECT_FALSE(workers_->alive("task"));
  EXPECT_TRUE(workers_->alive("other"));
  timer_->advance(600 * kMilli);
  EXPECT_EQ(worker_->kept.size(), 7u);
  EXPECT_EQ(other_->kept.size(), 1u);
}

TEST_F(LeaseKeeperTest, TellsLaterWhatWasNotHeard) {
  keeper_->keep("task", 1);
  keeper_->tell_later("task", 11);
  keeper_->tell_later("task", std::string("graph"));
  keeper_->tell_later("never kept", 12);
  worker_->kept_answer = unavailable("lost");
  timer_->advance(100 * kMilli);
  EXPECT_EQ(worker_->kept.back().over_steps, (std::vector<int64_t>{11}));
  for (int64_t step = 12; step < 5012; ++step) keeper_->tell_later("task", step);
  worker_->kept_answer = ok_status();
  timer_->advance(100 * kMilli);
  EXPECT_EQ(worker_->kept.back().over_steps.size(), 4096u) << "what is kept has an end";
  EXPECT_EQ(worker_->kept.back().over_steps.back(), 5011);
  EXPECT_EQ(worker_->kept.back().over_graphs, (std::vector<std::string>{"graph"}));
  timer_->advance(100 * kMilli);
  EXPECT_TRUE(worker_->kept.back().over_steps.empty());
  EXPECT_TRUE(worker_->kept.back().over_graphs.empty());
}

TEST_F(LeaseKeeperTest, WhatSomebodyElseTellsIsNotToldAgain) {
  worker_->kept_answer = ok_status();
  keeper_->keep("task", 1);
  keeper_->tell_later("task", 11);
  keeper_->tell_later("task", 12);
  EXPECT_EQ(keeper_->take_over_steps("task"), (std::vector<int64_t>{11, 12}));
  EXPECT_TRUE(keeper_->take_over_steps("task").empty());
  EXPECT_TRUE(keeper_->take_over_steps("never kept").empty());
  timer_->advance(100 * kMilli);
  EXPECT_TRUE(worker_->kept.back().over_steps.empty());
}

}  // namespace
}  // namespace millrace
