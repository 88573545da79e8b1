// test-labels: threads
// Runs in pieces over two tasks, whatever carries the calls.
#include <gtest/gtest.h>

#include <thread>

#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/distributed/partial_keys.h"

namespace millrace {
namespace {

Tensor f32(float value) { return Tensor::scalar(value); }

// first = a + b on task 1; second = first * c on task 0, and third = second + c on task 1.
class PartialRuns : public testing::TestWithParam<InProcessCluster::Transport> {
 protected:
  void SetUp() override {
    if (GetParam() == InProcessCluster::Transport::kGrpc) {
      if (const Status status = grpc_available(); !status.ok()) GTEST_SKIP() << status.to_string();
    }
    t_.emplace(InProcessCluster::Options{.transport = GetParam()});
    t_->on(kTask0);
    Expr a = t_->placeholder(DType::kFloat), b = t_->placeholder(DType::kFloat),
         c = t_->placeholder(DType::kFloat);
    t_->on(kTask1);
    Expr first = t_->add("Add", {a, b});
    t_->on(kTask0);
    Expr second = t_->add("Mul", {first, c});
    t_->on(kTask1);
    Expr third = t_->add("Add", {second, c});
    a_ = t_->name(a), b_ = t_->name(b), c_ = t_->name(c);
    first_ = t_->name(first), second_ = t_->name(second), third_ = t_->name(third);
  }

  std::string begin() {
    return t_->session().partial_run_setup({{a_, b_, c_}, {first_, second_, third_}, {}}).value();
  }
  Result<float> piece(const std::string& run, const Session::Feeds& feeds, const std::string& fetch,
                      const RunOptions& options = {}) {
    MR_TRY_ASSIGN(std::vector<Tensor> out, t_->session().partial_run(run, feeds, {fetch}, options));
    return out[0].item<float>();
  }

  std::optional<ClusterTest> t_;
  std::string a_, b_, c_, first_, second_, third_;
};

TEST_P(PartialRuns, FeedAndFetchInPieces) {
  t_->open();
  // Two runs at once do not see each other.
  const std::string run = begin(), other = begin();
  EXPECT_EQ(piece(run, {{a_, f32(1)}}, first_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(piece(run, {{a_, f32(1)}, {b_, f32(2)}}, first_).value(), 3);
  EXPECT_EQ(piece(other, {{b_, f32(3)}, {a_, f32(4)}}, first_).value(), 7);
  EXPECT_EQ(piece(run, {{a_, f32(1)}}, second_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(piece(run, {{c_, f32(10)}}, second_).value(), 30);
  // What was computed waits to be fetched, though nothing runs any more.
  EXPECT_EQ(piece(run, {}, third_).value(), 40);
  EXPECT_EQ(piece(run, {}, third_).status().code(), Code::kInvalidArgument) << "it is over";
  EXPECT_EQ(piece(other, {{c_, f32(2)}}, third_).value(), 16);
  EXPECT_EQ(piece(other, {}, second_).value(), 14);
  EXPECT_EQ(t_->open_steps(), 0u);
}

TEST_P(PartialRuns, AnErrorEndsTheRunEverywhere) {
  t_->on(kTask1);
  const Expr fed = t_->placeholder(DType::kBool);
  const std::string check = t_->add_target("Assert", {fed, t_->graph().constant(1)});
  GraphBuilder::Context& context = t_->graph().builder().context();
  context.control_inputs = {t_->graph().graph().find(check)};
  const Expr checked = t_->add("Neg", {t_->constant(1)});
  context.control_inputs.clear();
  t_->open();
  const std::string run =
      t_->session()
          .partial_run_setup({{a_, b_, c_, t_->name(fed)}, {first_, third_, t_->name(checked)}, {}})
          .value();
  EXPECT_EQ(piece(run, {{a_, f32(1)}, {b_, f32(2)}}, first_).value(), 3);
  const Status failed =
      piece(run, {{t_->name(fed), Tensor::scalar(false)}}, t_->name(checked)).status();
  EXPECT_EQ(failed.code(), Code::kInvalidArgument);
  EXPECT_NE(failed.message().find("Assert"), std::string_view::npos) << failed.to_string();
  EXPECT_EQ(t_->open_steps(), 0u) << "though c was never fed";
}

TEST_P(PartialRuns, ADeadFetchLeavesTheRest) {
  t_->on(kTask1);
  const Expr way = t_->placeholder(DType::kBool), x = t_->placeholder(DType::kFloat);
  const Expr no = t_->add("Identity", {t_->add("Switch", {x, way})});
  t_->open();
  const std::string run =
      t_->session()
          .partial_run_setup({{t_->name(way), t_->name(x), a_, b_}, {t_->name(no), first_}, {}})
          .value();
  const Status dead =
      piece(run, {{t_->name(way), Tensor::scalar(true)}, {t_->name(x), f32(1)}}, t_->name(no))
          .status();
  EXPECT_EQ(dead.code(), Code::kInvalidArgument) << dead.to_string();
  EXPECT_EQ(piece(run, {{a_, f32(1)}, {b_, f32(2)}}, first_).value(), 3);
  EXPECT_EQ(t_->open_steps(), 0u);
}

TEST_P(PartialRuns, ClosingTheSessionEndsThoseThatWait) {
  t_->open();
  for (int i = 0; i < 5; ++i) begin();
  const std::string half = begin();
  EXPECT_EQ(piece(half, {{a_, f32(1)}, {b_, f32(2)}}, first_).value(), 3);
  EXPECT_TRUE(t_->session().close().ok());
  EXPECT_EQ(t_->open_steps(), 0u);
  EXPECT_EQ(t_->registered_graphs(), 0u);
}

TEST_P(PartialRuns, CancellingAPieceEndsTheRun) {
  t_->on(kTask1);
  const Expr stuck = t_->add("TestStuck", {});
  const std::string never = t_->name(stuck);
  t_->open();
  const std::string run = t_->session().partial_run_setup({{a_, b_}, {first_, never}, {}}).value();
  RunOptions options;
  options.timeout_ms = 1;
  EXPECT_EQ(piece(run, {}, never, options).status().code(), Code::kDeadlineExceeded);
  const std::string again =
      t_->session().partial_run_setup({{a_, b_}, {first_, never}, {}}).value();
  options.timeout_ms = 0;
  options.cancel = make_ref<CancellationToken>();
  Status ended;
  std::thread waits([&] { ended = piece(again, {}, never, options).status(); });
  options.cancel->cancel(cancelled("enough"));
  waits.join();
  EXPECT_EQ(ended.code(), Code::kCancelled) << ended.to_string();
  EXPECT_EQ(piece(again, {}, first_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(piece(run, {{a_, f32(1)}, {b_, f32(2)}}, first_).value(), 3);
  t_->close();
  EXPECT_EQ(t_->open_steps(), 0u);
}

TEST_P(PartialRuns, ALostTaskIsNamed) {
  t_->open();
  const std::string run = begin(), quiet = begin();
  EXPECT_EQ(piece(run, {{a_, f32(1)}, {b_, f32(2)}}, first_).value(), 3);
  ASSERT_TRUE(t_->cluster().stop(kTask1).ok());
  const Status lost = piece(run, {{c_, f32(1)}}, third_).status();
  EXPECT_EQ(lost.code(), Code::kUnavailable) << lost.to_string();
  EXPECT_NE(lost.message().find(kTask1), std::string_view::npos) << lost.to_string();
  EXPECT_EQ(piece(run, {}, second_).status().code(), Code::kInvalidArgument) << "it is over";
  EXPECT_EQ(piece(quiet, {{a_, f32(1)}, {b_, f32(2)}}, first_).status().code(), Code::kUnavailable);
  EXPECT_EQ(t_->open_steps(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Direct, PartialRuns,
                         testing::Values(InProcessCluster::Transport::kDirect));
INSTANTIATE_TEST_SUITE_P(SameHost, PartialRuns,
                         testing::Values(InProcessCluster::Transport::kSameHost));
INSTANTIATE_TEST_SUITE_P(Grpc, PartialRuns, testing::Values(InProcessCluster::Transport::kGrpc));

}  // namespace
}  // namespace millrace
