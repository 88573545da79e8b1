#include "millrace/distributed/repeated_run.h"

#include <gtest/gtest.h>

#include <optional>

#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/rpc/remote_worker.h"

namespace millrace {
namespace {

// Keeps what it is asked, to be answered later.
class AskedWorker final : public SilentWorker {
 public:
  explicit AskedWorker(bool remote) : remote_(remote) {}
  bool needs_lease() const override { return remote_; }
  void run_graph(RunGraphRequest request, Ref<CancellationToken>,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override {
    steps.push_back(request.step_id);
    waits.push_back(std::move(done));
  }
  void answer(const Status& status, bool lost = false) {
    auto done = std::move(waits.back());
    RunGraphResponse response;
    response.lost = lost;
    done(status, std::move(response));
  }

  std::vector<int64_t> steps;
  std::vector<UniqueFunction<void(Status, RunGraphResponse)>> waits;

 private:
  const bool remote_;
};

class RepeatedRunTest : public testing::Test {
 protected:
  void run(bool remote = true) {
    worker_ = make_ref<AskedWorker>(remote);
    RunGraphRequest request;
    request.step_id = 7;
    run_graph_surely(worker_, timer_, std::move(request), cancel_,
                     [this](Status status, const RunGraphResponse&) {
                       EXPECT_FALSE(status_.has_value());  // once
                       status_ = std::move(status);
                     });
  }
  void let_pause_pass(int repeated) {
    timer_->advance(repeat_after_ms(lost_after_ms(), repeated) * 1'000'000);
  }

  const Ref<ManualTimer> timer_ = make_ref<ManualTimer>();
  const Ref<CancellationToken> cancel_ = make_ref<CancellationToken>();
  Ref<AskedWorker> worker_;
  std::optional<Status> status_;
};

TEST_F(RepeatedRunTest, IsSaidAgainWhenTheConnectionIsLost) {
  run();
  worker_->answer(unavailable("lost"), /*lost=*/true);
  EXPECT_EQ(worker_->steps.size(), 1u);
  let_pause_pass(0);
  EXPECT_EQ(worker_->steps, (std::vector<int64_t>{7, 7}));
  worker_->answer(ok_status());
  EXPECT_TRUE(status_->ok());
  EXPECT_EQ(timer_->scheduled(), 0u);
}

TEST_F(RepeatedRunTest, IsNotSaidAgainWhenTheTaskAnswered) {
  run();
  worker_->answer(unavailable("a peer is lost"));  // the run's own error
  EXPECT_EQ(*status_, unavailable("a peer is lost"));
  EXPECT_EQ(timer_->scheduled(), 0u);
}

TEST_F(RepeatedRunTest, GivesUpInTime) {
  run();
  int64_t passed = 0;
  for (int repeated = 0; repeated < kMaxRepeats; ++repeated) {
    worker_->answer(unavailable("lost ", repeated), /*lost=*/true);
    EXPECT_FALSE(status_);
    let_pause_pass(repeated);
    passed += repeat_after_ms(lost_after_ms(), repeated);
  }
  worker_->answer(unavailable("lost at last"), /*lost=*/true);
  EXPECT_EQ(*status_, unavailable("lost 0"));
  EXPECT_LT(passed, bear_loss_ms_for(lost_after_ms()));  // the task waits for longer
}

TEST_F(RepeatedRunTest, IsNotSaidAgainOnceTheTaskHasGivenItUp) {
  run();
  worker_->answer(unavailable("lost"), /*lost=*/true);
  let_pause_pass(0);
  timer_->advance(bear_loss_ms_for(lost_after_ms()) * 1'000'000);  // to connect took so long
  worker_->answer(unavailable("cannot connect"), /*lost=*/true);
  EXPECT_EQ(*status_, unavailable("lost"));
  EXPECT_EQ(timer_->scheduled(), 0u);
}

// Loses every call in one way.
class LosingChannel final : public Channel {
 public:
  explicit LosingChannel(Status how) : how_(std::move(how)) {}
  std::string peer() const override { return "task"; }
  void call(std::string_view, Message, Ref<CancellationToken>, CallDone done) override {
    done(how_, Message());
  }

 private:
  const Status how_;
};

TEST_F(RepeatedRunTest, ATaskThatFellSilentIsNotAskedAgain) {
  const auto lose = [&](const Status& how) {
    status_.reset();
    run_graph_surely(
        make_remote_worker(make_ref<LosingChannel>(how)), timer_, RunGraphRequest(), cancel_,
        [this](Status status, const RunGraphResponse&) { status_ = std::move(status); });
  };
  lose(silent_peer("task", 2000));
  EXPECT_EQ(status_->to_string(), "UNAVAILABLE: lost task: it has said nothing for 2000 ms");
  EXPECT_EQ(timer_->scheduled(), 0u);
  lose(unavailable("lost task: reset"));
  EXPECT_FALSE(status_);
  EXPECT_EQ(timer_->scheduled(), 1u);
  cancel_->cancel(cancelled("enough"));
}

TEST_F(RepeatedRunTest, ATaskThatHasRestartedIsLost) {
  run();
  worker_->answer(unavailable("lost"), /*lost=*/true);
  let_pause_pass(0);
  worker_->answer(aborted("no graph"));
  EXPECT_EQ(*status_, unavailable("lost"));
}

TEST_F(RepeatedRunTest, EndsWhenItIsCancelledMeanwhile) {
  run();
  worker_->answer(unavailable("lost"), /*lost=*/true);
  cancel_->cancel(cancelled("enough"));
  EXPECT_EQ(*status_, cancelled("enough"));  // at once
  EXPECT_EQ(timer_->scheduled(), 0u);
  let_pause_pass(0);
  EXPECT_EQ(worker_->steps.size(), 1u);
}

TEST_F(RepeatedRunTest, TasksOfThisProcessAreAskedOnce) {
  run(/*remote=*/false);
  worker_->answer(unavailable("it has ended"), /*lost=*/true);
  EXPECT_EQ(*status_, unavailable("it has ended"));
  EXPECT_EQ(timer_->scheduled(), 0u);
}

}  // namespace
}  // namespace millrace
