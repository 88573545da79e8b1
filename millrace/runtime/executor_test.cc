// test-labels: threads
// test-links: ops
#include "millrace/runtime/executor.h"

#include <gtest/gtest.h>

#include "millrace/runtime/executor_testing.h"
#include "millrace/runtime/scratch.h"

namespace millrace {
namespace {

using Values = TestGraph::Values;

// Both gears where the plan allows the straight one; the single int32 that they agree on.
int32_t run_int(TestGraph& g, std::vector<Tensor> feeds = {}) {
  Result<Ref<Plan>> plan = g.plan();
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return -1;
  Result<std::vector<Tensor>> parallel = run_plan(*plan, feeds, 1, Gear::kParallel);
  EXPECT_TRUE(parallel.ok()) << parallel.status().to_string();
  if (!parallel.ok()) return -1;
  if ((*plan)->straight_allowed()) {
    Result<std::vector<Tensor>> straight = run_plan(*plan, feeds, 1, Gear::kStraight);
    EXPECT_TRUE(straight.ok()) << straight.status().to_string();
    EXPECT_TRUE(straight.ok() && bit_equal((*straight)[0], (*parallel)[0]));
  }
  // The same plan again: what a run leaves behind must not show in the next.
  for (int i = 0; i < 3; ++i) {
    Result<std::vector<Tensor>> again = run_plan(*plan, feeds, 1, Gear::kParallel);
    EXPECT_TRUE(again.ok() && bit_equal((*again)[0], (*parallel)[0]));
  }
  return (*parallel)[0].item<int32_t>();
}

Tensor i32(int32_t v) { return Tensor::scalar<int32_t>(v); }

TEST(Executor, ComputesADiamond) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  Expr a = x + g.constant(1), b = x * g.constant(2);
  g.fetch(a * b + x, 0);
  EXPECT_EQ(run_int(g, {i32(5)}), 6 * 10 + 5);
}

TEST(Executor, LeavesFedMemoryAlone) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  g.fetch(x + g.constant(1), 0);
  Tensor fed = i32(5);
  EXPECT_EQ(run_int(g, {fed}), 6);
  EXPECT_EQ(fed.item<int32_t>(), 5);
}

TEST(Executor, PlannedMemoryIsTakenOnce) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  g.fetch((x * x) * x, 0);
  const Ref<Plan> plan = g.plan().value();
  // A buffer for every value.
  std::vector<const void*> memory;
  {
    std::unique_ptr<StraightArena> arena = plan->scratch->take_arena();
    arena->planned = std::make_unique<Ref<Buffer>[]>(static_cast<size_t>(plan->straight_slots));
    for (int32_t slot = 0; slot < plan->straight_slots; ++slot) {
      arena->planned[static_cast<size_t>(slot)] =
          Buffer::allocate(DType::kInt32, 1, cpu_allocator()).value();
      memory.push_back(arena->planned[static_cast<size_t>(slot)]->data());
    }
    plan->scratch->give_back(std::move(arena));
  }
  const auto planned = [&](const Tensor& t) {
    return std::find(memory.begin(), memory.end(), t.raw()) != memory.end();
  };
  // x * x is written to planned memory, the product with x over it, and that is fetched.
  const Tensor first = run_plan(plan, {i32(2)}, 1, Gear::kStraight).value()[0];
  EXPECT_EQ(first.item<int32_t>(), 8);
  EXPECT_TRUE(planned(first));
  EXPECT_TRUE(first.writable());
  // Who fetched it keeps it: later runs write elsewhere.
  for (int i = 0; i < 3; ++i) {
    const Tensor later = run_plan(plan, {i32(3)}, 1, Gear::kStraight).value()[0];
    EXPECT_EQ(later.item<int32_t>(), 27);
    EXPECT_FALSE(planned(later));
  }
  EXPECT_EQ(first.item<int32_t>(), 8);
}

TEST(Executor, LongChains) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  Expr y = x;
  for (int i = 0; i < 5000; ++i) y = y + g.constant(1);
  g.fetch(y, 0);
  EXPECT_EQ(run_int(g, {i32(0)}), 5000);
}

TEST(Executor, WideFans) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  Values all;
  for (int i = 0; i < 1000; ++i) all.push_back(x * g.constant(i));
  g.fetch(call("AddN", all), 0);
  EXPECT_EQ(run_int(g, {i32(2)}), 999 * 1000);
}

TEST(SemanticsOfControlFlow, SwitchAndMergeTakeOneBranch) {
  TestGraph g;
  Expr pred = g.feed(DType::kBool, 0);
  Expr x = g.feed(DType::kInt32, 1);
  g.fetch(g.cond(pred, x, [&](Expr v) { return v * v; }, [&](Expr v) { return -v; }), 0);
  EXPECT_EQ(run_int(g, {Tensor::scalar<bool>(true), i32(7)}), 49);
  EXPECT_EQ(run_int(g, {Tensor::scalar<bool>(false), i32(7)}), -7);
}

TEST(SemanticsOfControlFlow, FetchingADeadTensorIsAnError) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  std::vector<Expr> branch = call_multi("Switch", {x, g.constant(true)});
  g.fetch(branch[0] + branch[0], 0);
  Result<std::vector<Tensor>> out = run_plan(g.plan().value(), {i32(1)}, 1);
  EXPECT_EQ(out.status().code(), Code::kInvalidArgument);
  EXPECT_NE(out.status().message().find("was not valid"), std::string_view::npos);
}

TEST(SemanticsOfControlFlow, TwoLiveInputsIntoAMergeAreInternal) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  g.fetch(call_multi("Merge", {x + g.constant(1), x + g.constant(2)}, {{"N", 2}})[0], 0);
  Result<std::vector<Tensor>> out = run_plan(g.plan().value(), {i32(1)}, 1);
  EXPECT_EQ(out.status().code(), Code::kInternal) << out.status().to_string();
}

TEST(SemanticsOfControlFlow, ControlTriggerRunsAlthoughItsInputIsDead) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  std::vector<Expr> branch = call_multi("Switch", {x, g.constant(true)});
  Expr dead = -branch[0];
  GraphBuilder::Context saved = g.builder().context();
  g.builder().context().control_inputs = {GraphBuilder::output(dead).node};
  NodeId trigger = g.builder().add("ControlTrigger", "", {}).value();
  g.builder().context().control_inputs = {trigger};
  Expr alive = x + g.constant(1);
  g.builder().context() = saved;
  g.fetch(alive, 0);
  EXPECT_EQ(run_int(g, {i32(4)}), 5);
}

class Loops : public ::testing::TestWithParam<int> {};  // parallel_iterations

TEST_P(Loops, CountsToN) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Values out = g.while_loop(
      "loop", {g.constant(0), g.constant(0)}, {n, g.constant(1)},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [](Values v, Values c) { return Values{v[0] + c[1], v[1] + v[0]}; }, GetParam());
  g.fetch(out[1], 0);
  EXPECT_EQ(run_int(g, {i32(0)}), 0);
  EXPECT_EQ(run_int(g, {i32(1)}), 0);
  EXPECT_EQ(run_int(g, {i32(100)}), 4950);
}

TEST_P(Loops, Nested) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Values out = g.while_loop(
      "outer", {g.constant(0), g.constant(0)}, {n, g.constant(1)},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [&](Values v, Values c) {
        Values inner = g.while_loop(
            "inner", {c[1] - c[1], v[1]}, {v[0], c[1]},
            [](Values w, Values d) { return less(w[0], d[0]); },
            [](Values w, Values d) { return Values{w[0] + d[1], w[1] + d[0]}; }, GetParam());
        return Values{v[0] + c[1], inner[1]};
      },
      GetParam());
  g.fetch(out[1], 0);
  int32_t expected = 0;
  for (int32_t i = 0; i < 20; ++i) expected += i * i;
  EXPECT_EQ(run_int(g, {i32(20)}), expected);
}

TEST_P(Loops, WithAConditionalInside) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Values out = g.while_loop(
      "loop", {g.constant(0), g.constant(0)}, {n, g.constant(1), g.constant(2)},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [&](Values v, Values c) {
        Expr even = equal(call("FloorMod", {v[0], c[2]}), c[1] - c[1]);
        Expr one = call_multi("Switch", {c[1], even})[1];
        Expr next = g.cond(even, v[1], [&](Expr x) { return x + one; }, [&](Expr x) { return -x; });
        return Values{v[0] + c[1], next};
      },
      GetParam());
  g.fetch(out[1], 0);
  int32_t expected = 0;
  for (int i = 0; i < 11; ++i) expected = i % 2 == 0 ? expected + 1 : -expected;
  EXPECT_EQ(run_int(g, {i32(11)}), expected);
}

TEST_P(Loops, InAnUntakenBranchIsDead) {
  TestGraph g;
  Expr pred = g.feed(DType::kBool, 0);
  Expr x = g.feed(DType::kInt32, 1);
  Expr y = g.cond(
      pred, x,
      [&](Expr v) {
        return g.while_loop(
            "loop", {v}, {v * v}, [](Values w, Values c) { return less(w[0], c[0]); },
            [](Values w, Values) { return Values{w[0] + w[0]}; }, GetParam())[0];
      },
      [](Expr v) { return -v; });
  g.fetch(y, 0);
  EXPECT_EQ(run_int(g, {Tensor::scalar<bool>(true), i32(3)}), 12);
  EXPECT_EQ(run_int(g, {Tensor::scalar<bool>(false), i32(3)}), -3);
}

INSTANTIATE_TEST_SUITE_P(ParallelIterations, Loops, ::testing::Values(1, 2, 10, 32));

TEST(Executor, TheFirstErrorEndsTheRunAndNamesTheNode) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  g.builder().context().origin =
      intern_origin({.file = "train.py", .line = 14, .code = "y = x // z"});
  Expr y = call("FloorDiv", {x, x - x});
  g.builder().context().origin = 0;
  g.fetch(y, 0);
  Ref<Plan> plan = g.plan().value();
  for (Gear gear : {Gear::kStraight, Gear::kParallel}) {
    Status status = run_plan(plan, {i32(3)}, 1, gear).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    std::string text = status.to_string();
    EXPECT_NE(text.find("FloorDiv \"FloorDiv\""), std::string::npos) << text;
    EXPECT_NE(text.find("defined at train.py:14"), std::string::npos) << text;
    EXPECT_NE(text.find("[[{{node FloorDiv}}]]"), std::string::npos) << text;
  }
}

TEST(Executor, AnErrorInALoopEndsIt) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Values out = g.while_loop(
      "loop", {n}, {g.constant(1), g.constant(100)},
      [](Values v, Values c) { return less(v[0], c[1]); },
      [](Values v, Values c) {
        Expr quotient = call("FloorDiv", {c[1], v[0]});
        return Values{quotient - quotient + v[0] - c[0]};
      });
  g.fetch(out[0], 0);
  Status status = run_plan(g.plan().value(), {i32(10)}, 1).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
}

}  // namespace
}  // namespace millrace
