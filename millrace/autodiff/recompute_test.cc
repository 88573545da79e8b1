#include "millrace/autodiff/recompute.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"
#include "millrace/tensor/allocator.h"

namespace millrace {
namespace {

using Exprs = std::vector<Expr>;

constexpr int64_t kSize = 1 << 16;
constexpr int64_t kBytes = kSize * 8;
constexpr int kLayers = 64;
// A thread counts what it allocates by itself, and tells the rest after a while: the process's
// counts may be off by as much for each thread.
constexpr int64_t kSlack = kBytes;

struct Outcome {
  Tensor gradient;
  int64_t peak = 0;
};

// The gradient of many layers of tanh, each of which needs its own output.
Outcome run(const GradientOptions& given, int every = 0) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kDouble, {.shape = PartialShape({kSize})});
  Expr y = x;
  GradientOptions options = given;
  for (int i = 0; i < kLayers; ++i) {
    y = ops::tanh(root, y * 1.01);
    if (every > 0 && i % every == every - 1 && i + 1 < kLayers) options.checkpoints.push_back(y);
  }
  Expr loss = ops::sum(root, y, root.constant(int32_t{0}));
  auto g = gradients(root.builder(), std::span(&loss, 1), std::span(&x, 1), {}, options);
  EXPECT_TRUE(g.ok()) << g.status().to_string();
  SessionOptions session_options;
  session_options.gear = Gear::kStraight;
  session_options.threads = 1;
  ClientSession session = ClientSession::create(root, session_options).value();
  Tensor value = Tensor::zeros(DType::kDouble, {kSize}).value();
  for (size_t i = 0; i < static_cast<size_t>(kSize); ++i) {
    value.mutable_data<double>()[i] = static_cast<double>(i) / kSize;
  }
  auto callable = session.make_callable({x}, {(*g)[0].values}).value();
  std::vector<Tensor> out;
  EXPECT_TRUE(callable->run(std::span(&value, 1), out).ok());
  out.clear();
  int64_t before = cpu_allocator().stats().bytes_in_use;
  cpu_allocator().reset_peak();
  EXPECT_TRUE(callable->run(std::span(&value, 1), out).ok());
  return {out[0], cpu_allocator().stats().peak_bytes_in_use - before};
}

class Recompute : public testing::Test {
 protected:
  void expect_same_with_less(const Outcome& other, int64_t at_most) {
    EXPECT_TRUE(bit_equal(other.gradient, kept().gradient));
    EXPECT_LE(other.peak, at_most);
  }
  static const Outcome& kept() {
    static const Outcome& once = *new Outcome(run({}));
    return once;
  }
};

TEST_F(Recompute, EverythingIsKeptUnlessAsked) {
  EXPECT_GE(kept().peak, kLayers * kBytes - kSlack);
}

TEST_F(Recompute, ChoosesWhatToKeep) {
  expect_same_with_less(run({.recompute = true}), 24 * kBytes);
}

TEST_F(Recompute, KeepsWhatItIsTold) { expect_same_with_less(run({}, 8), 28 * kBytes); }

TEST_F(Recompute, FitsABudget) {
  expect_same_with_less(run({.memory_budget = 40 * kBytes}), 44 * kBytes);
  // One that all of it fits changes nothing.
  EXPECT_NEAR(static_cast<double>(run({.memory_budget = 1000 * kBytes}).peak),
              static_cast<double>(kept().peak), kSlack);
}

TEST_F(Recompute, OperationsWithStateRunOnce) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kDouble, {.shape = PartialShape({4})});
  Expr y = x;
  Exprs masks;
  for (int i = 0; i < 16; ++i) {
    Expr noise = ops::random_uniform(root, root.constant(Tensor::vector<int32_t>({4})),
                                     DType::kDouble, {.seed = i + 1});
    masks.push_back(noise);
    y = ops::tanh(root, y * noise);
  }
  auto g = gradients(root.builder(), std::span(&y, 1), std::span(&x, 1), {}, {.recompute = true});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  ClientSession session = ClientSession::create(root).value();
  Exprs fetches = masks;
  fetches.push_back((*g)[0].values);
  Tensor start = Tensor::vector<double>({0.1, -0.2, 0.3, 0.5});
  std::vector<Tensor> out = session.run({{x, start}}, fetches).value();
  for (size_t k = 0; k < 4; ++k) {
    double value = start.data<double>()[k], derivative = 1;
    for (size_t i = 0; i < masks.size(); ++i) {
      double m = out[i].data<double>()[k];
      double next = std::tanh(value * m);
      derivative *= m * (1 - next * next);
      value = next;
    }
    EXPECT_NEAR(out.back().data<double>()[k], derivative, 1e-12);
  }
}

// A loop keeps its variables alone; the values inside an iteration are made again.
TEST_F(Recompute, LoopsKeepTheirVariables) {
  auto peak = [](bool recompute) {
    Scope root = Scope::make_root();
    Expr x = ops::placeholder(root, DType::kDouble, {.shape = PartialShape({kSize})});
    Exprs out = while_loop(
        root, {root.constant(int32_t{0}), x},
        [](const Scope& s, const Exprs& v) { return ops::less(s, v[0], s.constant(int32_t{16})); },
        [](const Scope& s, const Exprs& v) {
          Expr y = v[1];
          for (int i = 0; i < 4; ++i) y = ops::tanh(s, y * 1.01);
          return Exprs{v[0] + 1.0, y};
        });
    auto g = gradients(root.builder(), std::span(&out[1], 1), std::span(&x, 1), {},
                       {.recompute = recompute});
    EXPECT_TRUE(g.ok()) << g.status().to_string();
    ClientSession session = ClientSession::create(root).value();
    auto callable = session.make_callable({x}, {(*g)[0].values}).value();
    std::vector<Tensor> result;
    Tensor value = Tensor::zeros(DType::kDouble, {kSize}).value();
    EXPECT_TRUE(callable->run(std::span(&value, 1), result).ok());
    int64_t before = cpu_allocator().stats().bytes_in_use;
    cpu_allocator().reset_peak();
    EXPECT_TRUE(callable->run(std::span(&value, 1), result).ok());
    return cpu_allocator().stats().peak_bytes_in_use - before;
  };
  EXPECT_GE(peak(false), 4 * 16 * kBytes - kSlack);
  EXPECT_LE(peak(true), (16 + 12) * kBytes);
}

// The lists of a loop on another device stay on the host, and the gradient is the same.
TEST(SwapMemory, KeepsSavedValuesOnTheHost) {
  auto run = [](bool swap, std::set<std::string>& devices) {
    Scope root = Scope::make_root();
    Expr x = ops::placeholder(root, DType::kDouble, {.shape = PartialShape({8})});
    Scope there = root.with_device("/device:CPU:1");
    Exprs out = while_loop(
        there, {there.constant(int32_t{0}), x},
        [](const Scope& s, const Exprs& v) { return ops::less(s, v[0], s.constant(int32_t{5})); },
        [](const Scope& s, const Exprs& v) {
          return Exprs{v[0] + 1.0, ops::tanh(s.with_device("/device:CPU:1"), v[1] * 1.1)};
        });
    auto g = gradients(there.builder(), std::span(&out[1], 1), std::span(&x, 1), {},
                       {.swap_memory = swap});
    EXPECT_TRUE(g.ok()) << g.status().to_string();
    SessionOptions options;
    options.cpu_devices = 2;
    ClientSession session = ClientSession::create(root, options).value();
    RunOptions traced;
    traced.trace = true;
    RunMetadata metadata;
    Tensor value = Tensor::vector<double>({-1, -.5, -.1, 0, .1, .2, .5, 1});
    std::vector<Tensor> got =
        session.run({{x, value}}, {(*g)[0].values}, {}, traced, &metadata).value();
    for (const TraceEvent& event : metadata.events) {
      if (event.op == "TensorListPushBack" || event.op == "TensorListPopBack") {
        devices.insert(event.device);
      }
    }
    return got[0];
  };
  std::set<std::string> kept, swapped;
  Tensor a = run(false, kept), b = run(true, swapped);
  EXPECT_TRUE(bit_equal(a, b));
  ASSERT_EQ(swapped.size(), 1U);
  EXPECT_TRUE(swapped.begin()->ends_with("CPU:0")) << *swapped.begin();
}

}  // namespace
}  // namespace millrace
