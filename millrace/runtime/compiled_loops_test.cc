// test-labels: threads
// test-links: ops
#include "millrace/runtime/compiled_loops.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "millrace/runtime/executor_testing.h"

namespace millrace {
namespace {

using Values = TestGraph::Values;

Tensor i32(int32_t v) { return Tensor::scalar<int32_t>(v); }

Expr op(std::string_view name, Expr a, Expr b) { return call(name, {a, b}); }

// The plan of a graph all of whose loops are to do without frames.
Ref<Plan> compiled(TestGraph& g) {
  Result<Ref<Plan>> plan = g.plan();
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return nullptr;
  EXPECT_EQ((*plan)->loops.size() + 1, (*plan)->frames.size());
  EXPECT_TRUE((*plan)->straight_allowed());
  return *plan;
}
// The plan of a graph that has to have frames.
Ref<Plan> with_frames(TestGraph& g) {
  Result<Ref<Plan>> plan = g.plan();
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return nullptr;
  EXPECT_EQ((*plan)->loop_of(1), nullptr);
  EXPECT_FALSE((*plan)->straight_allowed());
  return *plan;
}

Result<std::vector<Tensor>> run_with_frames(TestGraph& g, std::vector<Tensor> feeds, int fetches) {
  MR_TRY_ASSIGN(Ref<Plan> plan, g.plan());
  for (const std::unique_ptr<PlanLoop>& loop : plan->loops) loop->worth_frames = true;
  return run_plan(plan, std::move(feeds), fetches, Gear::kParallel);
}

// Runs a graph with frames and without, in both gears and repeatedly: equal to the bit.
std::vector<Tensor> run_all(TestGraph& g, const std::vector<Tensor>& feeds, int fetches) {
  Result<std::vector<Tensor>> frames = run_with_frames(g, feeds, fetches);
  EXPECT_TRUE(frames.ok()) << frames.status().to_string();
  const Ref<Plan> plan = compiled(g);
  if (!frames.ok() || plan == nullptr) return {};
  for (Gear gear : {Gear::kParallel, Gear::kStraight, Gear::kParallel, Gear::kStraight}) {
    Result<std::vector<Tensor>> out = run_plan(plan, feeds, fetches, gear);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    for (size_t i = 0; out.ok() && i < frames->size(); ++i) {
      EXPECT_TRUE(bit_equal((*out)[i], (*frames)[i])) << "fetch " << i;
    }
  }
  return *frames;
}

// Steps of a range, without guards.
int size_of(const Plan& plan, PlanLoop::Range range) {
  int size = 0;
  for (int32_t i = range.first; i < range.last; ++i) {
    size += plan.loop_steps[static_cast<size_t>(i)].kind != StepKind::kGuard;
  }
  return size;
}

TEST(CompiledLoops, AnIterationIsItsKernels) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Values out = g.while_loop(
      "loop", {g.constant(0)}, {n, g.constant(1)},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [](Values v, Values c) { return Values{v[0] + c[1]}; });
  g.fetch(out[0], 0);
  const Ref<Plan> plan = compiled(g);
  const PlanLoop& loop = *plan->loops[0];
  EXPECT_EQ(size_of(*plan, loop.condition), 1);
  EXPECT_EQ(size_of(*plan, loop.body), 2);  // an Identity and the sum
  EXPECT_EQ(loop.moves.size(), 1u);
  EXPECT_EQ(run_all(g, {i32(1000)}, 1)[0].item<int32_t>(), 1000);
  EXPECT_EQ(run_all(g, {i32(0)}, 1)[0].item<int32_t>(), 0);
}

TEST(CompiledLoops, VariablesChangePlaces) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  // a, b, c, i = b, c, a + b, i + 1; and one that stays.
  Values out = g.while_loop(
      "loop", {g.constant(1), g.constant(2), g.constant(3), g.constant(0), g.constant(7)},
      {n, g.constant(1)}, [](Values v, Values c) { return less(v[3], c[0]); },
      [](Values v, Values c) { return Values{v[1], v[2], v[0] + v[1], v[3] + c[1], v[4]}; });
  for (int i = 0; i < 5; ++i) g.fetch(out[static_cast<size_t>(i)], i);
  int32_t a = 1, b = 2, c = 3;
  for (int i = 0; i < 9; ++i) {
    const int32_t next = a + b;
    a = b;
    b = c;
    c = next;
  }
  std::vector<Tensor> values = run_all(g, {i32(9)}, 5);
  EXPECT_EQ(values[0].item<int32_t>(), a);
  EXPECT_EQ(values[1].item<int32_t>(), b);
  EXPECT_EQ(values[2].item<int32_t>(), c);
  EXPECT_EQ(values[4].item<int32_t>(), 7);
}

TEST(CompiledLoops, WhatNoIterationChangesIsComputedOnce) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Values out = g.while_loop(
      "loop", {g.constant(0)}, {n, g.constant(1)},
      [](Values v, Values c) { return less(v[0], c[0] * c[0]); },
      [](Values v, Values c) { return Values{v[0] + (c[0] + c[1]) * c[1]}; });
  g.fetch(out[0], 0);
  const Ref<Plan> plan = compiled(g);
  EXPECT_EQ(size_of(*plan, plan->loops[0]->before), 3);
  EXPECT_EQ(size_of(*plan, plan->loops[0]->condition), 1);
  EXPECT_EQ(size_of(*plan, plan->loops[0]->body), 2);
  EXPECT_EQ(run_all(g, {i32(5)}, 1)[0].item<int32_t>(), 30);
}

TEST(CompiledLoops, AVariableIsUpdatedInPlace) {
  TestGraph g;
  Expr x = g.feed(DType::kFloat, 0);
  Values out = g.while_loop(
      "loop", {g.constant(0), x}, {g.constant(10), g.constant(1)},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [](Values v, Values c) { return Values{v[0] + c[1], -v[1]}; });
  g.fetch(out[1], 0);
  const Ref<Plan> plan = compiled(g);
  const Tensor fed = Tensor::zeros(DType::kFloat, {1 << 16}).value();
  const int64_t before = cpu_allocator().stats().bytes_in_use;
  cpu_allocator().reset_peak();
  ASSERT_TRUE(run_plan(plan, {fed}, 1, Gear::kStraight).ok());
  // The copy of what was fed, and nothing besides.
  EXPECT_LT(cpu_allocator().stats().peak_bytes_in_use - before, 2 * (1 << 18));
}

// Loops in loops and branches, wired at random: sums, products, variables that change places.
class RandomLoops {
 public:
  explicit RandomLoops(uint32_t seed) : random_(seed) {}

  int build() {
    Values pool;
    for (int i = 0; i < kFeeds; ++i) pool.push_back(g.feed(DType::kInt32, i));
    pool.push_back(g.constant(1));
    pool.push_back(g.constant(3));
    for (int i = 0; i < 3; ++i) {
      for (Expr e : loop(pool, 0)) pool.push_back(e);
    }
    int fetches = 0;
    for (Expr e : pool) g.fetch(e, fetches++);
    return fetches;
  }

  static constexpr int kFeeds = 2;
  TestGraph g;

 private:
  size_t pick(size_t n) { return random_() % n; }
  Expr any(const Values& pool) { return pool[pick(pool.size())]; }

  Values loop(const Values& pool, int depth) {
    // A counter that begins where the values around it do, so that it is dead where they are.
    Expr around = pool[0];
    Values initial = {around - around};
    for (size_t i = 0, n = 1 + pick(3); i < n; ++i) initial.push_back(gated(any(pool), around));
    Values invariants = {one(around)};
    for (size_t i = 0, n = pick(3); i < n; ++i) invariants.push_back(any(pool));
    const size_t turns = pick(6);
    return g.while_loop(
        str_cat("loop", ++names_), initial, invariants,
        [&](Values v, Values c) {
          Expr bound = c[0] - c[0];
          for (size_t i = 0; i < turns; ++i) bound = bound + c[0];
          return less(v[0], bound);
        },
        [&](Values v, Values c) {
          Values inside = v;
          inside.insert(inside.end(), c.begin(), c.end());
          grow(inside, depth + 1);
          Values next = {v[0] + c[0]};
          for (size_t i = 1; i < v.size(); ++i) next.push_back(gated(any(inside), v[0]));
          return next;
        },
        1 + static_cast<int>(pick(4)));
  }
  Expr one(Expr x) { return call("FloorDiv", {x * x + number(x), x * x + number(x)}); }
  // A value that is not 0, from what is there: x * x + 1 in the ring of x.
  Expr number(Expr x) { return equal_as_int(x, x); }
  Expr equal_as_int(Expr a, Expr b) {
    return call("Cast", {equal(a, b)}, {{"DstT", DType::kInt32}});
  }
  // As x, but there only where `by` is.
  Expr gated(Expr x, Expr by) { return x + (by - by); }

  void grow(Values& pool, int depth) {
    for (size_t i = 0, n = 1 + pick(6); i < n; ++i) {
      switch (pick(depth < 3 ? 7 : 4)) {
        case 0:
        case 1:
          pool.push_back(any(pool) + any(pool));
          break;
        case 2:
          pool.push_back(any(pool) * any(pool));
          break;
        case 3:
          pool.push_back(any(pool) - any(pool));
          break;
        case 4:
          pool.push_back(branch(pool, depth, /*with_loop=*/false));
          break;
        case 5:
          pool.push_back(branch(pool, depth, /*with_loop=*/pick(2) == 0));
          break;
        case 6: {
          for (Expr e : loop(pool, depth)) pool.push_back(gated(e, pool[0]));
          break;
        }
      }
    }
  }

  Expr branch(const Values& pool, int depth, bool with_loop) {
    Expr pred = pick(2) == 0 ? less(any(pool), any(pool)) : equal(any(pool), any(pool));
    Expr x = gated(any(pool), pool[0]);
    Expr other = any(pool);
    Values others = call_multi("Switch", {other, pred});
    const auto side = [&](size_t port) {
      return [&, port](Expr v) {
        Values inside = {v, others[port]};
        if (with_loop && pick(2) == 0) {
          for (Expr e : loop(inside, depth + 1)) inside.push_back(e);
        } else {
          grow(inside, depth + 1);
        }
        return gated(any(inside), v);
      };
    };
    return g.cond(pred, x, side(1), side(0));
  }

  std::mt19937 random_;
  int names_ = 0;
};

class RandomLoopsTest : public testing::TestWithParam<uint32_t> {};

TEST_P(RandomLoopsTest, AreEqualWithFramesAndWithout) {
  SCOPED_TRACE(str_cat("seed ", GetParam()));
  RandomLoops loops(GetParam());
  const int fetches = loops.build();
  std::mt19937 random(GetParam());
  for (int i = 0; i < 3; ++i) {
    std::vector<Tensor> feeds;
    for (int k = 0; k < RandomLoops::kFeeds; ++k) {
      feeds.push_back(i32(static_cast<int32_t>(random() % 7) - 3));
    }
    run_all(loops.g, feeds, fetches);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomLoopsTest, testing::Range(0u, 60u));

TEST(CompiledLoops, RandomOnesHaveLoopsInBranchesOfLoops) {
  int loops = 0, guards = 0, loops_in_loops = 0, guarded_loops = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    RandomLoops random(seed);
    random.build();
    const Ref<Plan> plan = compiled(random.g);
    for (const std::unique_ptr<PlanLoop>& loop : plan->loops) {
      ++loops;
      guards += static_cast<int>(loop->guards.size());
      loops_in_loops += plan->frames[static_cast<size_t>(loop->frame)].parent != 0 ? 1 : 0;
    }
    for (size_t i = 1; i < plan->loop_steps.size(); ++i) {
      guarded_loops += plan->loop_steps[i - 1].kind == StepKind::kGuard &&
                       plan->loop_steps[i].kind == StepKind::kLoop;
    }
  }
  EXPECT_GT(loops, 100);
  EXPECT_GT(guards, 100);
  EXPECT_GT(loops_in_loops, 30);
  EXPECT_GT(guarded_loops, 0);
}

TEST(CompiledLoops, ABranchThatIsNotTakenDoesNotRun) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  // In every second iteration a division by zero is on the other side.
  Values out = g.while_loop(
      "loop", {g.constant(0), g.constant(0)}, {n, g.constant(1), g.constant(2), g.constant(0)},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [&](Values v, Values c) {
        Expr odd = op("FloorMod", v[0], c[2]);
        Expr is_odd = equal(odd, c[1]);
        Expr next = g.cond(
            is_odd, v[1],
            [&](Expr x) { return op("FloorDiv", x + x, call_multi("Switch", {odd, is_odd})[1]); },
            [&](Expr x) { return x + call_multi("Switch", {c[1], is_odd})[0]; });
        return Values{v[0] + c[1], next};
      });
  g.fetch(out[1], 0);
  int32_t expected = 0;
  for (int i = 0; i < 12; ++i) expected = i % 2 == 1 ? 2 * expected : expected + 1;
  EXPECT_EQ(run_all(g, {i32(12)}, 1)[0].item<int32_t>(), expected);
}

TEST(CompiledLoops, TheNumberOfTheBranchIsThere) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Values out = g.while_loop(
      "loop", {g.constant(0), g.constant(0)}, {n, g.constant(1), g.constant(3)},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [&](Values v, Values c) {
        Values sides = call_multi("Switch", {v[0], less(v[0], c[2])});
        Expr number = call_multi("Merge", {-sides[0], sides[1]}, {{"N", 2}})[1];
        return Values{v[0] + c[1], v[1] + number};
      });
  g.fetch(out[1], 0);
  EXPECT_EQ(run_all(g, {i32(10)}, 1)[0].item<int32_t>(), 3);
}

TEST(CompiledLoops, EffectsHappenOncePerIterationAndInOrder) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Expr handle = g.builder().emit("VarHandleOp", {},
                                 {{"dtype", DType::kInt32}, {"shape", PartialShape::scalar()}})[0];
  GraphBuilder::Context& context = g.builder().context();
  const GraphBuilder::Context saved = context;
  const auto assign = [&](Expr variable, Expr value) {
    return g.builder()
        .add("AssignVariableOp", "", {GraphBuilder::output(variable), GraphBuilder::output(value)})
        .value();
  };
  const NodeId init = assign(handle, g.constant(1));
  context.control_inputs = {init};
  Expr zero = call("Identity", {g.constant(0)});
  context = saved;
  // v = 3 * v + i, read after the update, in every iteration.
  Values out = g.while_loop(
      "loop", {zero, zero}, {n, g.constant(1), g.constant(3), handle},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [&](Values v, Values c) {
        const GraphBuilder::Context around = context;
        context.control_inputs = {GraphBuilder::output(v[0]).node};
        Expr read = call("ReadVariableOp", {c[3]}, {{"dtype", DType::kInt32}});
        context = around;
        context.control_inputs = {assign(c[3], read * c[2] + v[0])};
        Expr now = call("ReadVariableOp", {c[3]}, {{"dtype", DType::kInt32}});
        context = around;
        return Values{v[0] + c[1], now};
      },
      /*parallel=*/1);
  g.fetch(out[1], 0);
  int32_t expected = 1;
  for (int i = 0; i < 10; ++i) expected = 3 * expected + i;
  EXPECT_EQ(run_all(g, {i32(10)}, 1)[0].item<int32_t>(), expected);
}

TEST(CompiledLoops, ErrorsNameTheLineAndLeaveThePlanUsable) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Values out = g.while_loop(
      "loop", {n}, {g.constant(1), g.constant(100)},
      [](Values v, Values c) { return less(v[0], c[1]); },
      [&](Values v, Values c) {
        g.builder().context().origin =
            intern_origin({.file = "train.py", .line = 14, .code = "y = x // z"});
        Expr quotient = op("FloorDiv", c[1], v[0]);
        g.builder().context().origin = 0;
        return Values{quotient - quotient + v[0] - c[0]};
      });
  g.fetch(out[0], 0);
  const Ref<Plan> plan = compiled(g);
  const Status frames = run_with_frames(g, {i32(10)}, 1).status();
  EXPECT_EQ(frames.code(), Code::kInvalidArgument);
  EXPECT_NE(frames.to_string().find("defined at train.py:14"), std::string::npos);
  for (int turn = 0; turn < 2; ++turn) {
    for (Gear gear : {Gear::kParallel, Gear::kStraight}) {
      EXPECT_EQ(run_plan(plan, {i32(10)}, 1, gear).status().to_string(), frames.to_string());
      Result<std::vector<Tensor>> good = run_plan(plan, {i32(200)}, 1, gear);
      EXPECT_TRUE(good.ok() && (*good)[0].item<int32_t>() == 200);
    }
  }
}

TEST(CompiledLoops, APredicateThatIsNoScalarIsAnError) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Values out = g.while_loop(
      "loop", {n}, {n}, [](Values v, Values c) { return less(v[0], c[0]); },
      [](Values v, Values) { return Values{v[0]}; });
  g.fetch(out[0], 0);
  const Ref<Plan> plan = compiled(g);
  const Tensor two = Tensor::zeros(DType::kInt32, {2}).value();
  const Status frames = run_with_frames(g, {two}, 1).status();
  EXPECT_EQ(frames.code(), Code::kInvalidArgument);
  for (Gear gear : {Gear::kParallel, Gear::kStraight}) {
    EXPECT_EQ(run_plan(plan, {two}, 1, gear).status().to_string(), frames.to_string());
  }
}

// A loop without an end.
Ref<Plan> endless(TestGraph& g) {
  Values out = g.while_loop(
      "loop", {g.constant(0), g.constant(true)}, {g.constant(1)},
      [](Values v, Values) { return v[1]; },
      [](Values v, Values c) { return Values{v[0] + c[0], v[1]}; });
  g.fetch(out[0], 0);
  return compiled(g);
}

TEST(EndlessLoops, EndWhenTheStepIsCancelled) {
  TestGraph g;
  const Ref<Plan> plan = endless(g);
  for (Gear gear : {Gear::kStraight, Gear::kParallel}) {
    Ref<Step> step = Step::make_shared(1);
    step->fetches.resize(1);
    std::thread other([&] { step->cancel->cancel(cancelled("enough")); });
    Status status;
    if (gear == Gear::kStraight) {
      status = run_straight(*plan, *step);
    } else {
      step->begin(1, nullptr);
      run_parallel(plan, step);
      step->wait();
      status = step->status();
    }
    other.join();
    EXPECT_EQ(status.code(), Code::kCancelled) << status.to_string();
  }
}

TEST(EndlessLoops, EndAtTheDeadline) {
  TestGraph g;
  const Ref<Plan> plan = endless(g);
  Ref<Step> step = Step::make_shared(1);
  step->fetches.resize(1);
  step->deadline = Deadline::after_millis(5);
  EXPECT_EQ(run_straight(*plan, *step).code(), Code::kDeadlineExceeded);
}

TEST(EndlessLoops, EndWhenTheyAreInterrupted) {
  TestGraph g;
  const Ref<Plan> plan = endless(g);
  Ref<Step> step = Step::make_shared(1);
  step->fetches.resize(1);
  step->interrupted = [] { return true; };
  EXPECT_EQ(run_straight(*plan, *step).code(), Code::kCancelled);
}

// Two long steps side by side in every iteration.
struct Wide {
  TestGraph g;
  Ref<Plan> plan;
  Wide() {
    Expr n = g.feed(DType::kInt32, 0);
    Values out = g.while_loop(
        "loop", {g.constant(0), g.constant(0), g.constant(0)}, {n, g.constant(1)},
        [](Values v, Values c) { return less(v[0], c[0]); },
        [](Values v, Values c) { return Values{v[0] + c[1], v[1] + v[0], v[2] - v[0]}; });
    for (int i = 0; i < 3; ++i) g.fetch(out[static_cast<size_t>(i)], i);
    plan = compiled(g);
  }
  void pretend(std::string_view op_name, uint32_t ns) {
    for (size_t i = 0; i < plan->steps.size(); ++i) {
      if (plan->steps[i].node->op->name == op_name) plan->step_ns[i] = ns;
    }
  }
  void expect_results(Gear gear = Gear::kParallel) {
    std::vector<Tensor> out = run_plan(plan, {i32(100)}, 3, gear).value();
    EXPECT_EQ(out[0].item<int32_t>(), 100);
    EXPECT_EQ(out[1].item<int32_t>(), 4950);
    EXPECT_EQ(out[2].item<int32_t>(), -4950);
  }
};

TEST(CompiledLoops, LongStepsSideBySideGetFrames) {
  Wide wide;
  // What is measured in the first iterations of the run counts for little against this.
  wide.pretend("AddV2", 1'000'000'000);
  wide.pretend("Add", 1'000'000'000);
  wide.pretend("Sub", 1'000'000'000);
  EXPECT_FALSE(wide.plan->loops[0]->worth_frames);
  wide.expect_results();  // goes over to frames on the way
  EXPECT_TRUE(wide.plan->loops[0]->worth_frames);
  EXPECT_FALSE(runs_straight(*wide.plan, Gear::kAuto));
  wide.expect_results();
  EXPECT_EQ(wide.plan->runs.load(), 2u);
}

// Where steps should pay side by side, whole runs tell which gear a plan has.
TEST(Gears, TheOneWhoseRunsTakeLess) {
  Wide wide;
  const auto straight_of = [&](uint64_t runs) {
    int straight = 0;
    for (uint64_t run = 0; run < runs; ++run) {
      wide.plan->runs = run;
      straight += runs_straight(*wide.plan, Gear::kAuto);
    }
    return straight;
  };
  wide.plan->worth_sharing = false;
  EXPECT_EQ(straight_of(100), 100);
  wide.plan->worth_sharing = true;
  EXPECT_EQ(straight_of(100), 0);  // until a run has been measured
  wide.plan->parallel_ns = 10'000'000;
  EXPECT_EQ(straight_of(96), 24);  // to know the other one soon
  wide.plan->straight_ns = 8'000'000;
  EXPECT_GT(straight_of(1000), 920);
  EXPECT_LT(straight_of(1000), 1000);
  wide.plan->straight_ns = 20'000'000;
  EXPECT_LT(straight_of(1000), 25);
  EXPECT_GT(straight_of(1000), 0);
  wide.plan->straight_ns = 0;
  wide.plan->parallel_ns = 1'500'000'000;  // too long for tries
  EXPECT_EQ(straight_of(1000), 0);
  EXPECT_TRUE(runs_straight(*wide.plan, Gear::kStraight));
  wide.plan->parallel_ns = wide.plan->straight_ns = 1;
  wide.plan->runs = 1;
  EXPECT_TRUE(runs_straight(*wide.plan, Gear::kAuto));
  EXPECT_FALSE(runs_straight(*wide.plan, Gear::kParallel));
}

TEST(Gears, RunsAreMeasuredInBoth) {
  Wide wide;
  wide.plan->worth_sharing = false;
  wide.expect_results(Gear::kStraight);
  wide.expect_results(Gear::kParallel);
  EXPECT_EQ(wide.plan->straight_ns, 0u);
  EXPECT_EQ(wide.plan->parallel_ns, 0u);
  wide.plan->worth_sharing = true;
  wide.expect_results(Gear::kParallel);
  EXPECT_EQ(wide.plan->straight_ns, 0u);
  EXPECT_GT(wide.plan->parallel_ns, 0u);
  const uint32_t parallel = wide.plan->parallel_ns;
  wide.plan->worth_sharing = true;
  wide.expect_results(Gear::kStraight);
  EXPECT_GT(wide.plan->straight_ns, 0u);
  EXPECT_EQ(wide.plan->parallel_ns, parallel);
}

TEST(CompiledLoops, OneLongStepGetsNone) {
  Wide wide;
  wide.pretend("Less", 1'000'000'000);
  wide.plan->review_gear();
  EXPECT_FALSE(wide.plan->loops[0]->worth_frames);
  EXPECT_TRUE(runs_straight(*wide.plan, Gear::kAuto));
}

TEST(CompiledLoops, ALoopThatHangsOnItsOwnOutputHasFrames) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  // What leaves goes in again, where nobody reads it.
  Expr start = g.enter(g.constant(0), "loop");
  Expr bound = g.enter(n, "loop", true), step = g.enter(g.constant(1), "loop", true);
  Expr merge = call_multi("Merge", {start, start}, {{"N", 2}})[0];
  Expr goes_on = call("LoopCond", {less(merge, bound)});
  Values sides = call_multi("Switch", {merge, goes_on});
  Expr next = call("NextIteration", {sides[1] + step});
  ASSERT_TRUE(g.graph()
                  .set_back_edge(GraphBuilder::output(merge).node, 1, GraphBuilder::output(next))
                  .ok());
  Expr out = call("Exit", {sides[0]});
  (void)g.enter(out + out, "loop", true);
  g.fetch(out, 0);
  const Ref<Plan> plan = with_frames(g);
  EXPECT_EQ(run_plan(plan, {i32(4)}, 1).value()[0].item<int32_t>(), 4);
}

TEST(CompiledLoops, AVariableThatIsUpdatedInABranchOnlyHasFrames) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  // The second variable goes round only while the first is below 2.
  Values out = g.while_loop(
      "loop", {g.constant(0), g.constant(0)}, {n, g.constant(1), g.constant(2)},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [](Values v, Values c) {
        Values sides = call_multi("Switch", {v[1], less(v[0], c[2])});
        return Values{v[0] + c[1], sides[1] + c[1]};
      });
  g.fetch(out[0], 0);
  const Ref<Plan> plan = with_frames(g);
  EXPECT_EQ(run_plan(plan, {i32(2)}, 1).value()[0].item<int32_t>(), 2);
}

TEST(CompiledLoops, AsynchronousKernelsHaveFrames) {
  TestGraph g;
  Expr n = g.feed(DType::kInt32, 0);
  Expr queue = g.builder().emit(
      "FIFOQueueV2", {},
      {{"component_types", std::vector<DType>{DType::kInt32}}, {"capacity", 10}})[0];
  Values out = g.while_loop(
      "loop", {g.constant(0)}, {n, g.constant(1), queue},
      [](Values v, Values c) { return less(v[0], c[0]); },
      [&](Values v, Values c) {
        GraphBuilder::Context saved = g.builder().context();
        NodeId put =
            g.builder()
                .add("QueueEnqueueV2", "", {GraphBuilder::output(c[2]), GraphBuilder::output(v[0])},
                     {{"Tcomponents", std::vector<DType>{DType::kInt32}}})
                .value();
        g.builder().context().control_inputs = {put};
        Expr next = v[0] + c[1];
        g.builder().context() = saved;
        return Values{next};
      });
  g.fetch(out[0], 0);
  const Ref<Plan> plan = with_frames(g);
  EXPECT_EQ(run_plan(plan, {i32(3)}, 1).value()[0].item<int32_t>(), 3);
}

}  // namespace
}  // namespace millrace
