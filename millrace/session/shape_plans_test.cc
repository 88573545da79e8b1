// test-labels: threads
#include "millrace/session/shape_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "millrace/session/session_testing.h"
#include "millrace/tensor/tensor_testing.h"
#include "proto/config.pb.h"

namespace millrace {
namespace {

using Shapes = SessionTest;

std::vector<Tensor> vector_of(int64_t n) {
  return {Tensor::zeros(DType::kFloat, Shape{n}).value()};
}

TEST(ShapePlans, OneCallerIsToldOnceTheShapesHaveComeOftenEnough) {
  ASSERT_TRUE(register_ops().ok());
  ShapePlans plans{Subgraph(OpRegistry::global())};
  for (int i = 1; i < ShapePlans::kRuns; ++i) EXPECT_FALSE(plans.count(vector_of(2)));
  EXPECT_FALSE(plans.count(vector_of(3)));
  EXPECT_TRUE(plans.count(vector_of(2)));
  // While one plan is made nobody else makes any.
  for (int i = 0; i < 3 * ShapePlans::kRuns; ++i) EXPECT_FALSE(plans.count(vector_of(3)));
}

TEST(ShapePlans, ShapesThatNeverComeBackCostNoMemory) {
  ASSERT_TRUE(register_ops().ok());
  ShapePlans plans{Subgraph(OpRegistry::global())};
  for (int64_t n = 0; n < 10'000; ++n) ASSERT_FALSE(plans.count(vector_of(n)));
  EXPECT_TRUE(plans.open());
  EXPECT_EQ(plans.find(vector_of(5), true), nullptr);
}

TEST(ShapePlans, NoneIsMadeOnceNoneWasWorthIt) {
  ASSERT_TRUE(register_ops().ok());
  ShapePlans plans{Subgraph(OpRegistry::global())};
  plans.give_up();
  EXPECT_FALSE(plans.open());
  for (int i = 0; i < 3 * ShapePlans::kRuns; ++i) EXPECT_FALSE(plans.count(vector_of(2)));
  EXPECT_FALSE(plans.graph_for(std::vector<Shape>{Shape{2}}, true).ok());
}

// What a session explains, as soon as `text` is in it.
std::string explained(Session& session, const Signature& signature, std::string_view text) {
  std::string plans;
  do {
    std::this_thread::yield();
    plans = session.explain(signature).value();
  } while (plans.find(text) == std::string::npos);
  return plans;
}

TEST_F(Shapes, APlanForTheShapesThatComeBackHasThemAsConstants) {
  Expr x = placeholder("x");
  Expr size = add("Size", "size", {x}, {{"out_type", DType::kInt32}});
  add("Mul", "y", {x, add("Cast", "count", {size}, {{"DstT", DType::kFloat}})});
  std::unique_ptr<Session> s = session();
  const Signature signature = {.feeds = {"x"}, .fetches = {"y"}};
  auto run = [&](int64_t n) {
    Tensor fed = Tensor::zeros(DType::kFloat, Shape{n}).value();
    for (float& v : fed.mutable_data<float>()) v = 2;
    Tensor out = s->run({{"x", fed}}, {"y"}).value()[0];
    ASSERT_EQ(out.shape(), Shape{n});
    for (float v : out.data<float>()) ASSERT_EQ(v, 2 * static_cast<float>(n));
  };
  for (int i = 0; i < ShapePlans::kRuns; ++i) run(3);
  const std::string plans = explained(*s, signature, "for feeds of the shapes [3]");
  const size_t special = plans.find("for feeds of"), memory = plans.find("memory:");
  EXPECT_LT(plans.find("Size size"), special);
  EXPECT_GT(plans.find("Size size", special), memory) << plans;
  // Back and forth, and a run that is traced tells the plan that it ran.
  for (int64_t n : {3, 4, 0, 3, 5, 3}) run(n);
  RunOptions traced;
  traced.trace = true;
  RunMetadata metadata;
  Tensor three = Tensor::zeros(DType::kFloat, Shape{3}).value();
  ASSERT_TRUE(s->run({{"x", three}}, {"y"}, {}, traced, &metadata).ok());
  EXPECT_EQ(metadata.plans.find("Size size"), std::string::npos);
  ASSERT_TRUE(s->run({{"x", f32(1)}}, {"y"}, {}, traced, &metadata).ok());
  EXPECT_NE(metadata.plans.find("Size size"), std::string::npos);
}

TEST_F(Shapes, ErrorsAreThoseOfTheGeneralPlan) {
  Expr x = placeholder("x"), y = placeholder("y");
  add("Add", "sum", {x, add("Reshape", "like", {y, add("Shape", "shape", {x}, {})})});
  std::unique_ptr<Session> s = session();
  auto run = [&](int64_t n, int64_t m) {
    return s->run({{"x", vector_of(n)[0]}, {"y", vector_of(m)[0]}}, {"sum"});
  };
  const Code before = code_of(run(3, 4));
  const std::string text = message_;
  for (int i = 0; i < ShapePlans::kRuns; ++i) ASSERT_FALSE(run(3, 4).ok());
  for (int i = 0; i < ShapePlans::kRuns; ++i) ASSERT_TRUE(run(3, 3).ok());
  explained(*s, {.feeds = {"x", "y"}, .fetches = {"sum"}}, "for feeds of the shapes");
  EXPECT_EQ(code_of(run(3, 4)), before);
  EXPECT_EQ(message_, text);
  EXPECT_TRUE(run(3, 3).ok());
}

// A stream of random numbers, a variable: state goes on where it was, to the bit.
TEST_F(Shapes, StateIsTheSameInEveryPlan) {
  Expr x = placeholder("x");
  Expr shape = add("Shape", "shape", {x});
  Expr random = add("RandomUniform", "random", {shape},
                    {{"dtype", DType::kFloat}, {"seed", 7}, {"seed2", 11}});
  Expr v = add("VariableV2", "v", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape{}}});
  add("Assign", "init", {v, constant(0)});
  add("AssignAdd", "count", {v, constant(1)});
  add("Add", "y", {add("Add", "z", {x, random}), add("Identity", "read", {v})});
  auto runs = [&](bool shape_plans) {
    SessionOptions options;
    options.shape_plans = shape_plans;
    std::unique_ptr<Session> s = session(options);
    EXPECT_TRUE(s->run({}, {}, {"init"}).ok());
    std::vector<Tensor> out;
    for (int i = 0; i < 4 * ShapePlans::kRuns; ++i) {
      if (shape_plans && i == 2 * ShapePlans::kRuns) {
        explained(*s, {.feeds = {"x"}, .fetches = {"y"}}, "for feeds of the shapes");
      }
      EXPECT_TRUE(s->run({}, {}, {"count"}).ok());
      out.push_back(s->run({{"x", vector_of(i % 3 == 0 ? 5 : 2)[0]}}, {"y"}).value()[0]);
    }
    return out;
  };
  const std::vector<Tensor> general = runs(false), special = runs(true);
  for (size_t i = 0; i < general.size(); ++i) {
    EXPECT_TRUE(bit_equal(general[i], special[i])) << "run " << i;
  }
}

// What a variable declares is a constant, until the graph has a node that may give it another
// shape.
TEST_F(Shapes, OfVariablesCountWhileTheyHold) {
  Expr x = placeholder("x");
  Expr v = add("VariableV2", "v", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape{4}}});
  add("Assign", "init",
      {v, add("Fill", "zeros", {builder_->constant(Tensor::vector<int32_t>({4})), constant(0)})});
  Expr sum = add("Add", "sum", {x, add("Identity", "read", {v})});
  add("Size", "size", {sum}, {{"out_type", DType::kInt32}});
  std::unique_ptr<Session> s = session();
  ASSERT_TRUE(s->run({}, {}, {"init"}).ok());
  auto size = [&](int64_t n) {
    return s->run({{"x", vector_of(n)[0]}}, {"size"}).value()[0].item<int32_t>();
  };
  for (int i = 0; i < ShapePlans::kRuns; ++i) EXPECT_EQ(size(1), 4);
  explained(*s, {.feeds = {"x"}, .fetches = {"size"}}, "for feeds of the shapes [1]");
  EXPECT_EQ(size(1), 4);
  // Seven elements from now on.
  add("Assign", "grow",
      {v, add("Fill", "more", {builder_->constant(Tensor::vector<int32_t>({7})), constant(0)})},
      {{"validate_shape", false}});
  ASSERT_TRUE(s->run({}, {}, {"grow"}).ok());
  for (int i = 0; i < 2 * ShapePlans::kRuns; ++i) EXPECT_EQ(size(1), 7);
}

// That a product may take a transposed operand is seen in a plan for shapes only, and would round
// differently: a step must not depend on how many came before it.
TEST_F(Shapes, ClosePassesDoTheSameInAllPlans) {
  const auto number = [&](int32_t n) { return builder_->constant(Tensor::scalar<int32_t>(n)); };
  Expr x = placeholder("x");
  Expr rank = add("Rank", "rank", {x});
  Expr order = add("Range", "range", {number(0), rank, number(1)});
  Expr perm = add("Sub", "perm", {add("Sub", "last", {rank, number(1)}), order});
  add("MatMul", "y", {add("Transpose", "turned", {x, perm}), x});
  std::unique_ptr<Session> s = session();
  const Tensor fed = Tensor::zeros(DType::kFloat, Shape{2, 3}).value();
  for (int i = 0; i < ShapePlans::kRuns; ++i) {
    ASSERT_EQ(s->run({{"x", fed}}, {"y"}).value()[0].shape(), (Shape{3, 3}));
  }
  const Signature signature = {.feeds = {"x"}, .fetches = {"y"}};
  const std::string plans = explained(*s, signature, "for feeds of the shapes [2,3]");
  const size_t begin = plans.find("for feeds of");
  const std::string special = plans.substr(begin, plans.find("memory:") - begin);
  EXPECT_EQ(special.find("Rank rank"), std::string::npos) << plans;
  EXPECT_NE(special.find("Transpose turned"), std::string::npos) << plans;
}

TEST_F(Shapes, WithoutAGainThereIsOnePlan) {
  add("Neg", "y", {placeholder("x")});
  std::unique_ptr<Session> s = session();
  const Signature signature = {.feeds = {"x"}, .fetches = {"y"}};
  auto callable = s->make_callable(signature).value();
  const int64_t with_graph = callable->bytes();
  std::vector<Tensor> out;
  for (int i = 0; i < ShapePlans::kRuns; ++i) ASSERT_TRUE(callable->run(vector_of(2), out).ok());
  // What plans would be made of is given up with them.
  while (callable->bytes() >= with_graph) std::this_thread::yield();
  EXPECT_EQ(s->explain(signature).value().find("for feeds"), std::string::npos);
}

TEST_F(Shapes, AsManyPlansAsFitAndNoMore) {
  Expr x = placeholder("x");
  Expr size = add("Size", "size", {x}, {{"out_type", DType::kInt32}});
  add("Mul", "y", {x, add("Cast", "count", {size}, {{"DstT", DType::kFloat}})});
  const Signature signature = {.feeds = {"x"}, .fetches = {"y"}};
  SessionOptions options;
  options.max_plan_bytes = 1;
  std::unique_ptr<Session> s = session(options);
  auto callable = s->make_callable(signature).value();
  const int64_t before = callable->bytes();
  std::vector<Tensor> out;
  for (int i = 0; i < ShapePlans::kRuns; ++i) ASSERT_TRUE(callable->run(vector_of(2), out).ok());
  while (callable->bytes() >= before) std::this_thread::yield();
  EXPECT_EQ(s->explain(signature).value().find("for feeds"), std::string::npos);

  s = session();
  callable = s->make_callable(signature).value();
  for (int64_t n = 1; n <= static_cast<int64_t>(ShapePlans::kMost) + 2; ++n) {
    for (int i = 0; i < ShapePlans::kRuns; ++i) ASSERT_TRUE(callable->run(vector_of(n), out).ok());
    if (n <= static_cast<int64_t>(ShapePlans::kMost)) {
      explained(*s, signature, str_cat("for feeds of the shapes [", n, "]"));
    }
  }
  const std::string plans = s->explain(signature).value();
  EXPECT_EQ(plans.find(str_cat("shapes [", ShapePlans::kMost + 1, "]")), std::string::npos);
}

// Threads feed shapes in turn, so that plans come while others run; sessions close meanwhile.
TEST_F(Shapes, PlansComeWhileThreadsRunAndSessionsClose) {
  Expr x = placeholder("x");
  Expr size = add("Size", "size", {x}, {{"out_type", DType::kInt32}});
  add("Mul", "y", {x, add("Cast", "count", {size}, {{"DstT", DType::kFloat}})});
  for (int round = 0; round < 10; ++round) {
    std::unique_ptr<Session> s = session();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 40; ++i) {
          const int64_t n = (i / 3 + t) % 6;
          Tensor fed = Tensor::zeros(DType::kFloat, Shape{n}).value();
          for (float& v : fed.mutable_data<float>()) v = 3;
          Result<std::vector<Tensor>> out = s->run({{"x", fed}}, {"y"});
          if (!out.ok()) {
            wrong += out.status().code() != Code::kFailedPrecondition &&
                     out.status().code() != Code::kCancelled;
            continue;
          }
          for (float v : (*out)[0].data<float>()) wrong += v != 3 * static_cast<float>(n);
        }
      });
    }
    if (round % 2 == 0) {
      EXPECT_TRUE(s->close().ok());
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong.load(), 0);
  }
}

// A deep network, layers of which read a variable that changes when the backward pass has come to
// some layer.
class Limits : public SessionTest {
 protected:
  static constexpr int kLayers = 48;
  static constexpr int64_t kElements = 100'000, kBytes = 4 * kElements;

  void network(int changes_at) {
    Expr v =
        add("VariableV2", "v", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape{kElements}}});
    Expr x = placeholder("x");
    add("Assign", "init", {v, x});
    Expr read = add("Identity", "read", {v});
    std::vector<Expr> made;
    Expr y = x;
    for (int i = 0; i < kLayers; ++i) {
      y = add("Add", str_cat("sum", i).c_str(), {y, read});
      made.push_back(y = add("Tanh", str_cat("layer", i).c_str(), {y}));
    }
    for (int i = kLayers; i-- > 0;) {
      y = add("TanhGrad", str_cat("back", i).c_str(), {made[static_cast<size_t>(i)], y});
      if (i == changes_at) add("AssignAdd", "update", {v, y});
    }
  }
  // What three steps give. Sets `peak` to the most that a step has added to the memory in use.
  std::vector<Tensor> steps(const SessionOptions& options, int64_t* peak) {
    Tensor fed = Tensor::zeros(DType::kFloat, Shape{kElements}).value();
    float next = 0;
    for (float& v : fed.mutable_data<float>()) v = (next += 1e-5F);
    std::unique_ptr<Session> s = session(options);
    EXPECT_TRUE(s->run({{"x", fed}}, {}, {"init"}).ok());
    std::vector<Tensor> out;
    *peak = 0;
    for (int i = 0; i < 3; ++i) {
      cpu_allocator().reset_peak();
      const int64_t before = cpu_allocator().stats().bytes_in_use;
      out.push_back(s->run({{"x", fed}}, {"back0"}, {"update"}).value()[0]);
      *peak = std::max(*peak, cpu_allocator().stats().peak_bytes_in_use - before);
    }
    return out;
  }
  // The memory that steps take within a limit of a third of the layers, in a gear.
  int64_t check_bits(Gear gear) {
    SessionOptions options;
    options.gear = gear;
    int64_t unlimited = 0, limited = 0;
    const std::vector<Tensor> expected = steps(options, &unlimited);
    // Threads may have counted a little less.
    EXPECT_GT(unlimited, (kLayers - 1) * kBytes);
    options.memory_limit = kLayers / 3 * kBytes;
    const std::vector<Tensor> found = steps(options, &limited);
    EXPECT_LT(limited, unlimited);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(bit_equal(expected[i], found[i])) << "step " << i;
    }
    return limited;
  }
};

TEST_F(Limits, HoldFromTheFirstRunAndChangeNoBit) {
  network(/*changes_at=*/0);
  for (const Gear gear : {Gear::kStraight, Gear::kParallel}) {
    EXPECT_LE(check_bits(gear), (kLayers / 3 + 1) * kBytes + 65536);  // and what is small
  }
}

// Layers that could be made again only from the changed variable are kept.
TEST_F(Limits, WhatWouldSeeAVariableChangedIsKept) {
  network(/*changes_at=*/kLayers / 2);
  for (const Gear gear : {Gear::kStraight, Gear::kParallel}) check_bits(gear);
}

TEST_F(Limits, ComeWithAConfigProto) {
  tensorflow::ConfigProto config;
  auto& optimizers = *config.mutable_graph_options()->mutable_rewrite_options();
  EXPECT_EQ(SessionOptions::from_proto(config).value().memory_limit, 0);
  optimizers.add_optimizers("pruning");
  optimizers.add_optimizers("memory_limit=1000000");
  EXPECT_EQ(SessionOptions::from_proto(config).value().memory_limit, 1'000'000);
  for (const char* wrong : {"memory_limit=", "memory_limit=-1", "memory_limit=1GB"}) {
    optimizers.set_optimizers(1, wrong);
    EXPECT_EQ(SessionOptions::from_proto(config).status().code(), Code::kInvalidArgument) << wrong;
  }
}

TEST_F(Limits, DependencyOptimizationOffLeavesGates) {
  tensorflow::ConfigProto config;
  config.mutable_graph_options()->mutable_rewrite_options()->set_dependency_optimization(
      tensorflow::RewriterConfig::OFF);
  EXPECT_EQ(SessionOptions::from_proto(config).value().disabled_passes,
            std::vector<std::string>{"gates"});
}

TEST_F(Limits, ShapeOptimizationOffIsGeneralPlansOnly) {
  tensorflow::ConfigProto config;
  EXPECT_TRUE(SessionOptions::from_proto(config).value().shape_plans);
  config.mutable_graph_options()->mutable_rewrite_options()->set_shape_optimization(
      tensorflow::RewriterConfig::OFF);
  const SessionOptions options = SessionOptions::from_proto(config).value();
  EXPECT_FALSE(options.shape_plans);
  EXPECT_EQ(options.disabled_passes, std::vector<std::string>{"known_values"});
}

TEST_F(Limits, WhatARunHeldIsToldAfterIt) {
  network(/*changes_at=*/0);
  SessionOptions options;
  options.disabled_passes = {"fuse_elementwise"};  // every layer is told apart
  std::unique_ptr<Session> s = session(options);
  Tensor fed = Tensor::zeros(DType::kFloat, Shape{kElements}).value();
  ASSERT_TRUE(s->run({{"x", fed}}, {}, {"init"}).ok());
  RunOptions traced;
  traced.trace = true;
  RunMetadata metadata;
  ASSERT_TRUE(s->run({{"x", fed}}, {"back0"}, {}, traced, &metadata).ok());
  EXPECT_GE(metadata.memory.peak_bytes, kLayers * kBytes);
  EXPECT_LE(metadata.memory.peak_bytes, (kLayers + 2) * kBytes);
  ASSERT_EQ(metadata.memory.largest.size(), TraceMemory::kLargest);
  EXPECT_EQ(metadata.memory.largest[0].bytes, kBytes);
  EXPECT_TRUE(metadata.memory.largest[0].node.starts_with("sum")) << "in place: layers are sums";
  const std::string plans = s->explain({.feeds = {"x"}, .fetches = {"back0"}}).value();
  EXPECT_NE(plans.find("memory: at most about"), std::string::npos) << plans;
}

}  // namespace
}  // namespace millrace
