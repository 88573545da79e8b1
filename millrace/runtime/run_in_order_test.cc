// test-labels: threads
// test-links: ops
#include <gtest/gtest.h>

#include "millrace/base/mutex.h"
#include "millrace/device/simulated/simulated_device.h"
#include "millrace/runtime/executor_testing.h"
#include "millrace/runtime/plan_set.h"

namespace millrace {
namespace {

class RunInOrder : public testing::Test {
 protected:
  RunInOrder() {
    static const Status registered = register_simulated_kernels(KernelRegistry::global());
    EXPECT_TRUE(registered.ok()) << registered.to_string();
    DeviceName task = DeviceName::parse("/job:localhost/replica:0/task:0").value();
    device_ = make_simulated_device(task).value();
  }

  Ref<PlanSet> plans() {
    EXPECT_TRUE(g_.builder().status().ok()) << g_.builder().status().to_string();
    Subgraph graph = Subgraph::from_graph(g_.graph());
    for (SubNode& node : graph.nodes()) node.device = graph.devices().intern(device_->name());
    Ref<Device> device = device_;
    Result<Ref<PlanSet>> made =
        PlanSet::build(graph, std::span(&device, 1), DeviceSet({device_->info()}, 0), {});
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *made : nullptr;
  }
  Ref<Step> begin(const Ref<PlanSet>& plans, std::vector<Tensor> feeds, size_t fetches) {
    Ref<Step> step = Step::make_shared(1);
    step->hold_feeds(std::move(feeds));
    step->fetches.resize(fetches);
    plans->run_async(step, nullptr);
    return step;
  }

  TestGraph g_;
  Ref<SimulatedDevice> device_;
};

TEST_F(RunInOrder, KernelsAreCalledInThePlansOrderWithoutWaiting) {
  Expr x = g_.feed(DType::kInt32, 0);
  std::vector<Expr> ends;
  for (int chain = 0; chain < 4; ++chain) {
    Expr y = x;
    for (int k = 0; k < 8; ++k) y = y + g_.constant(chain * 8 + k);
    ends.push_back(y);
  }
  g_.fetch(call("AddN", ends, {{"N", 4}}), 0);
  Ref<PlanSet> set = plans();
  std::vector<std::string> planned;
  for (const PlanStep& step : set->plans()[0]->steps) {
    if (step.node->op->name.starts_with("Add")) planned.push_back(step.node->name);
  }
  device_->stream()->hold();
  Ref<Step> step = begin(set, {Tensor::scalar<int32_t>(1)}, 1);
  // All have been called, none has run.
  EXPECT_EQ(device_->log(), planned);
  EXPECT_FALSE(step->wait(Deadline::after_millis(20)));
  device_->stream()->resume();
  ASSERT_TRUE(step->wait(Deadline::after_millis(60'000)));
  ASSERT_TRUE(step->status().ok()) << step->status().to_string();
  EXPECT_EQ(step->fetches[0].item<int32_t>(), 4 + 31 * 32 / 2);
}

TEST_F(RunInOrder, ARunWithoutFetchesEndsWithTheStream) {
  Expr x = g_.feed(DType::kInt32, 0);
  Expr y = x + x;
  ASSERT_TRUE(y.valid());
  Ref<PlanSet> set = plans();
  device_->stream()->hold();
  Ref<Step> step = begin(set, {Tensor::scalar<int32_t>(1)}, 0);
  EXPECT_FALSE(step->wait(Deadline::after_millis(20)));
  device_->stream()->resume();
  EXPECT_TRUE(step->wait(Deadline::after_millis(60'000)));
  EXPECT_TRUE(step->status().ok());
}

// What waits for the device, or for somebody else, holds up only what needs it.
TEST_F(RunInOrder, AsynchronousStepsDoNotStallTheRest) {
  Expr x = g_.feed(DType::kInt32, 0);
  Expr shape = call("Cast", {x}, {{"DstT", DType::kInt64}});
  Expr waits = call("Fill", {call("ExpandDims", {shape, g_.constant(0)}), g_.constant(7)});
  Expr y = x;
  for (int k = 0; k < 5; ++k) y = y + x;
  g_.fetch(waits, 0);
  g_.fetch(y, 1);
  Ref<PlanSet> set = plans();
  device_->stream()->hold();
  Ref<Step> step = begin(set, {Tensor::scalar<int32_t>(3)}, 2);
  EXPECT_EQ(device_->log().size(), 6u);  // all but Fill, whose shape is on its way to the host
  device_->stream()->resume();
  ASSERT_TRUE(step->wait(Deadline::after_millis(60'000)));
  ASSERT_TRUE(step->status().ok()) << step->status().to_string();
  EXPECT_EQ(step->fetches[0].shape(), Shape{3});
  EXPECT_EQ(step->fetches[1].item<int32_t>(), 18);
}

TEST_F(RunInOrder, LoopsAndBranchesAskTheDevice) {
  Expr n = g_.feed(DType::kInt32, 0);
  TestGraph::Values out = g_.while_loop(
      "loop", {g_.constant(0), g_.constant(1)}, {n},
      [](TestGraph::Values v, TestGraph::Values c) { return less(v[0], c[0]); },
      [&](TestGraph::Values v, TestGraph::Values) {
        Expr one = call("OnesLike", {v[0]});
        Expr even = call("Equal", {call("FloorMod", {v[0], one + one}), one - one});
        Expr next = g_.cond(even, v[1], [](Expr x) { return x + x; }, [](Expr x) { return x * x; });
        return TestGraph::Values{v[0] + one, next};
      });
  g_.fetch(out[1], 0);
  Ref<PlanSet> set = plans();
  for (int32_t times : {0, 1, 5, 5}) {
    Ref<Step> step = begin(set, {Tensor::scalar<int32_t>(times)}, 1);
    ASSERT_TRUE(step->wait(Deadline::after_millis(60'000)));
    ASSERT_TRUE(step->status().ok()) << step->status().to_string();
    int32_t expected = 1;
    for (int i = 0; i < times; ++i) expected = i % 2 == 0 ? 2 * expected : expected * expected;
    EXPECT_EQ(step->fetches[0].item<int32_t>(), expected);
  }
}

}  // namespace
}  // namespace millrace
