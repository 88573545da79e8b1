// test-labels: threads

// What docs/consistency.md promises, with many threads at once.

#include <atomic>
#include <functional>
#include <latch>
#include <thread>

#include "millrace/ops/state/state_testing.h"

namespace millrace {
namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 50;
// Large enough for updates to overlap.
constexpr int64_t kSize = 20'000;

// All elements the same.
Tensor filled(float value) {
  Tensor tensor = Tensor::allocate(DType::kFloat, {kSize}).value();
  for (float& x : tensor.mutable_data<float>()) x = value;
  return tensor;
}

bool is_filled(const Tensor& tensor) {
  for (float x : tensor.data<float>()) {
    if (x != tensor.data<float>()[0]) return false;
  }
  return true;
}

class Consistency : public StateTest {
 protected:
  using Body = std::function<void(OpEnv& env, int thread, int round)>;

  // Each thread has an environment of its own, over the device of the test.
  static void run_threads(const Body& body) {
    std::vector<std::thread> threads;
    std::latch ready(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&body, &ready, t] {
        OpEnv env;
        ready.arrive_and_wait();
        for (int round = 0; round < kRounds; ++round) body(env, t, round);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  Tensor read_in(OpEnv& env, const Tensor& resource) {
    OpTester tester(env, "ReadVariableOp");
    return tester.device(env_.device())
        .attr("dtype", DType::kFloat)
        .input(resource)
        .run_one()
        .value();
  }
};

TEST_F(Consistency, NoAddIsLostAndNoReadIsTorn) {
  const Tensor v = variable("v", filled(0));
  const Tensor one = filled(1);
  std::atomic<int> torn{0}, backwards{0};
  run_threads([&](OpEnv& env, int, int) {
    const Tensor before = read_in(env, v);
    const float first = before.data<float>()[0];
    OpTester add(env, "AssignAddVariableOp");
    EXPECT_TRUE(add.device(env_.device()).input(v).input(one).run().ok());
    const Tensor after = read_in(env, v);
    torn += !is_filled(before) + !is_filled(after);
    // What was read stays as it was, and the thread sees its own write.
    backwards += before.data<float>()[0] != first || after.data<float>()[0] < first + 1;
  });
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(backwards, 0);
  expect_equal(read(v), filled(kThreads * kRounds));
}

TEST_F(Consistency, AssignmentsAreWhole) {
  const Tensor v = variable("v", filled(0));
  std::atomic<int> torn{0};
  run_threads([&](OpEnv& env, int thread, int round) {
    // Every other time the value's own buffer is taken.
    OpTester assign(env, "AssignVariableOp");
    EXPECT_TRUE(assign.device(env_.device())
                    .movable(round % 2 == 0)
                    .input(v)
                    .input(filled(static_cast<float>(thread)))
                    .run()
                    .ok());
    torn += !is_filled(read_in(env, v));
  });
  EXPECT_EQ(torn, 0);
}

TEST_F(Consistency, ScatterAndGather) {
  const int64_t rows = 4;
  const Tensor v = variable("v", Tensor::zeros(DType::kFloat, {rows, kSize}).value());
  const Tensor all = Tensor::vector<int32_t>({0, 1, 2, 3});
  std::atomic<int> torn{0};
  run_threads([&](OpEnv& env, int, int) {
    OpTester add(env, "ResourceScatterAdd");
    EXPECT_TRUE(
        add.device(env_.device()).input(v).input(all).input(Tensor::scalar(1.0f)).run().ok());
    OpTester gather(env, "ResourceGather");
    torn += !is_filled(gather.device(env_.device())
                           .attr("dtype", DType::kFloat)
                           .input(v)
                           .input(all)
                           .run_one()
                           .value());
  });
  EXPECT_EQ(torn, 0);
  const Tensor end = read(v).value();
  EXPECT_TRUE(is_filled(end));
  EXPECT_EQ(end.data<float>()[0], kThreads * kRounds);
}

// Optimisers lock several variables; kernels that name them in another order must not wait for each
// other forever.
TEST_F(Consistency, OptimizersLockInOneOrder) {
  const Tensor a = variable("a", filled(0)), b = variable("b", filled(0));
  const Tensor zero = Tensor::scalar(0.0f), minus_one = Tensor::scalar(-1.0f);
  run_threads([&](OpEnv& env, int thread, int) {
    // accum = 0 * accum + 1, var += accum: the sum of both grows by one and the other becomes one.
    OpTester apply(env, "ResourceApplyMomentum");
    EXPECT_TRUE(apply.device(env_.device())
                    .input(thread % 2 == 0 ? a : b)
                    .input(thread % 2 == 0 ? b : a)
                    .input(minus_one)
                    .input(filled(1))
                    .input(zero)
                    .run()
                    .ok());
  });
  EXPECT_TRUE(is_filled(read(a).value()));
  EXPECT_TRUE(is_filled(read(b).value()));
}

TEST_F(Consistency, LockedReferencesLoseNoUpdateAndAreReadWhole) {
  Ref<RefCell> v = make_ref_cell(filled(0));
  const Tensor one = filled(1);
  std::atomic<int> torn{0};
  run_threads([&](OpEnv& env, int, int) {
    OpTester add(env, "AssignAdd");
    EXPECT_TRUE(add.attr("use_locking", true).input_ref(v).input(one).run().ok());
    torn += !is_filled(v->read());
  });
  EXPECT_EQ(torn, 0);
  expect_equal(v->read(), filled(kThreads * kRounds));
}

TEST_F(Consistency, LockedOptimizersOfReferences) {
  Ref<RefCell> v = make_ref_cell(filled(0));
  const Tensor one = filled(1), rate = Tensor::scalar(-1.0f);
  run_threads([&](OpEnv& env, int, int) {
    OpTester apply(env, "ApplyGradientDescent");
    EXPECT_TRUE(apply.attr("use_locking", true).input_ref(v).input(rate).input(one).run().ok());
  });
  expect_equal(v->read(), filled(kThreads * kRounds));
}

TEST_F(Consistency, CountUpToGivesEachNumberOnce) {
  Ref<RefCell> counter = make_ref_cell(Tensor::scalar<int32_t>(0));
  std::vector<std::atomic<int>> seen(kThreads * kRounds);
  run_threads([&](OpEnv& env, int, int) {
    OpTester count(env, "CountUpTo");
    Result<Tensor> got = count.attr("limit", kThreads * kRounds).input_ref(counter).run_one();
    ASSERT_TRUE(got.ok());
    ++seen[static_cast<size_t>(got->item<int32_t>())];
  });
  for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
}

TEST_F(Consistency, OneVariableHoweverManyMakeIt) {
  run_threads([&](OpEnv& env, int, int round) {
    OpTester make(env, "VarHandleOp");
    const Tensor resource = make.device(env_.device())
                                .attr("dtype", DType::kFloat)
                                .attr("shape", PartialShape())
                                .attr("shared_name", str_cat("v", round))
                                .run_one()
                                .value();
    OpTester assign(env, "AssignVariableOp");
    EXPECT_TRUE(
        assign.device(env_.device()).input(resource).input(Tensor::scalar(1.0f)).run().ok());
  });
  EXPECT_EQ(env_.resources().list().size(), static_cast<size_t>(kRounds));
}

}  // namespace
}  // namespace millrace
