#include "millrace/distributed/run_answer.h"

#include <gtest/gtest.h>

#include <optional>

namespace millrace {
namespace {

constexpr int64_t kPatience = 500'000'000;

// Who asks, and what it hears.
struct Heard {
  Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  std::optional<Status> status;
  RunGraphResponse response;

  void ask(RunAnswer& answer) {
    answer.ask(cancel, [this](Status s, RunGraphResponse r) {
      EXPECT_FALSE(status.has_value());  // once
      status = std::move(s);
      response = std::move(r);
    });
  }
  void lose() { cancel->cancel(unavailable("lost")); }
};

RunGraphResponse fetched(Tensor value) {
  RunGraphResponse response;
  response.fetches.push_back(std::move(value));
  return response;
}

class RunAnswerTest : public testing::Test {
 protected:
  const Ref<ManualTimer> timer_ = make_ref<ManualTimer>();
  const Ref<RunAnswer> answer_ = make_ref<RunAnswer>(timer_, kPatience);
};

TEST_F(RunAnswerTest, AnswersWhoAskedAndWhoAsksAgain) {
  Heard first, again;
  first.ask(*answer_);
  EXPECT_FALSE(first.status);
  answer_->finish(ok_status(), fetched(Tensor::scalar(7.0F)));
  EXPECT_TRUE(first.status->ok());
  EXPECT_EQ(first.response.fetches[0].item<float>(), 7);
  again.ask(*answer_);
  EXPECT_TRUE(again.status->ok());
  EXPECT_EQ(again.response.fetches[0].item<float>(), 7);
}

TEST_F(RunAnswerTest, ErrorsAreRememberedToo) {
  answer_->finish(data_loss("disk"), RunGraphResponse{.derived = true});
  Heard late;
  late.ask(*answer_);
  EXPECT_EQ(*late.status, data_loss("disk"));
  EXPECT_TRUE(late.response.derived);
}

TEST_F(RunAnswerTest, WhoAsksAgainTakesThePlaceOfWhoAskedBefore) {
  Heard first, again;
  first.ask(*answer_);
  again.ask(*answer_);
  EXPECT_EQ(first.status->code(), Code::kAborted);
  first.lose();  // which is of no interest any more
  EXPECT_EQ(timer_->scheduled(), 0u);
  answer_->finish(ok_status(), {});
  EXPECT_TRUE(again.status->ok());
  EXPECT_FALSE(answer_->token()->cancelled());
}

TEST_F(RunAnswerTest, ALostCallerIsWaitedFor) {
  Heard first, again;
  first.ask(*answer_);
  first.lose();
  EXPECT_EQ(first.status->code(), Code::kUnavailable);
  timer_->advance(kPatience - 1);
  EXPECT_FALSE(answer_->token()->cancelled());
  again.ask(*answer_);
  timer_->advance(kPatience);
  EXPECT_FALSE(answer_->token()->cancelled());
  again.lose();
  timer_->advance(kPatience);
  EXPECT_EQ(answer_->token()->status(), unavailable("lost"));
  answer_->finish(unavailable("lost"), {});
  EXPECT_EQ(timer_->scheduled(), 0u);
}

TEST_F(RunAnswerTest, ARunThatEndsWithoutACallerLeavesNothingBehind) {
  Heard first;
  first.ask(*answer_);
  first.lose();
  answer_->finish(ok_status(), {});
  EXPECT_EQ(timer_->scheduled(), 0u);
  EXPECT_FALSE(answer_->token()->cancelled());
}

TEST_F(RunAnswerTest, WhoGivesUpStopsTheRunAtOnce) {
  Heard first;
  first.ask(*answer_);
  first.cancel->cancel(deadline_exceeded("too late"));
  EXPECT_EQ(answer_->token()->status(), deadline_exceeded("too late"));
  EXPECT_FALSE(first.status);
  answer_->finish(deadline_exceeded("too late"), {});
  EXPECT_EQ(*first.status, deadline_exceeded("too late"));
}

TEST_F(RunAnswerTest, WhoHasGivenUpBeforeHeAsksStopsIt) {
  Heard first;
  first.cancel->cancel(cancelled("never mind"));
  first.ask(*answer_);
  EXPECT_EQ(answer_->token()->status(), cancelled("never mind"));
  answer_->finish(cancelled("never mind"), {});
  EXPECT_TRUE(first.status.has_value());
}

TEST_F(RunAnswerTest, LargeAnswersAreNotRemembered) {
  Heard first, again;
  first.ask(*answer_);
  const Tensor large = Tensor::zeros(DType::kFloat, Shape({1 << 20})).value();
  answer_->finish(ok_status(), fetched(large));
  EXPECT_TRUE(first.status->ok());
  EXPECT_EQ(first.response.fetches[0].bytes(), size_t{4} << 20);
  again.ask(*answer_);
  EXPECT_EQ(again.status->code(), Code::kAborted);
  EXPECT_TRUE(again.response.fetches.empty());
}

TEST_F(RunAnswerTest, WhatNobodyHasAskedForIsKeptWhateverItsSize) {
  const Tensor large = Tensor::zeros(DType::kFloat, Shape({1 << 20})).value();
  answer_->finish(ok_status(), fetched(large));
  Heard first, again;
  first.ask(*answer_);
  EXPECT_TRUE(first.status->ok());
  EXPECT_EQ(first.response.fetches[0].bytes(), size_t{4} << 20);
  again.ask(*answer_);
  EXPECT_EQ(again.status->code(), Code::kAborted) << "and no longer than that";
}

}  // namespace
}  // namespace millrace
