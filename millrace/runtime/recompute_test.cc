#include "millrace/runtime/recompute.h"

#include <gtest/gtest.h>

#include "millrace/runtime/pass_testing.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

constexpr int64_t kElements = 1000;
constexpr int64_t kBytes = kElements * 4;

class Recompute : public testing::Test {
 protected:
  Output fed() {
    AttrMap attrs = {{"T", DType::kInt32}, {"index", 0}, {kFeedShapeAttr, PartialShape{kElements}}};
    return g.add("_Arg", {}, std::move(attrs), here());
  }
  ToyPlace here() { return {.device = devices[0]->name()}; }
  Output mul(Output a, Output b) { return g.add("Mul", {a, b}, here()); }
  // x, f(x), f(f(x)) ... and back again, each step of which reads what the forward one made.
  Output network(int layers, Output x) {
    std::vector<Output> made;
    for (int i = 0; i < layers; ++i) made.push_back(x = g.add("Add", {x, fed_}, here()));
    Output back = x;
    for (int i = layers; i-- > 0;) back = mul(back, made[static_cast<size_t>(i)]);
    return back;
  }
  // The graph gives the same as before; what recompute() did.
  Recomputed check(int64_t budget, int fetches = 1) {
    Tensor x = Tensor::zeros(DType::kInt32, Shape{kElements}).value();
    int32_t next = 0;
    for (int32_t& v : x.mutable_data<int32_t>()) v = ++next;
    Result<std::vector<Tensor>> before = run_toy(g.graph, devices, {x}, fetches);
    EXPECT_TRUE(before.ok()) << before.status().to_string();
    Result<Recomputed> done = recompute(g.graph, budget);
    EXPECT_TRUE(done.ok()) << done.status().to_string();
    Result<std::vector<Tensor>> after = run_toy(g.graph, devices, {x}, fetches);
    EXPECT_TRUE(after.ok()) << after.status().to_string();
    for (size_t i = 0; i < before->size(); ++i) {
      EXPECT_TRUE(bit_equal((*before)[i], (*after)[i])) << "fetch " << i;
    }
    return *done;
  }

  std::vector<Ref<Device>> devices = toy_devices(1);
  ToyGraph g;
  Output fed_ = fed();
};

TEST_F(Recompute, ADeepNetworkFitsAThirdOfItsPeak) {
  g.fetch(network(64, fed_), 0, here());
  const MemoryEstimate before = estimate_memory(g.graph).value();
  EXPECT_GE(before.peak_bytes, 64 * kBytes);
  const Recomputed done = check(before.peak_bytes / 3);
  EXPECT_EQ(done.peak_before, before.peak_bytes);
  EXPECT_LE(done.peak_after, before.peak_bytes / 3);
  // No value is made a third time, and not all are made twice.
  EXPECT_LT(done.nodes, 64);
  // What it says holds for the graph that it left.
  EXPECT_EQ(estimate_memory(g.graph).value().peak_bytes, done.peak_after);
}

TEST_F(Recompute, WhatFitsStaysAsItIs) {
  g.fetch(network(16, fed_), 0, here());
  const int size = g.graph.size();
  const Recomputed done = check(1000 * kBytes);
  EXPECT_EQ(done.nodes, 0);
  EXPECT_EQ(g.graph.size(), size);
}

TEST_F(Recompute, NothingWithStateRunsTwice) {
  Output one = g.constant(Tensor::vector<int32_t>({1}), here());
  Output tick = g.add("AsShape", {g.add("Tick", {}, here()), one}, here());
  g.fetch(network(32, g.add("Add", {fed_, tick}, here())), 0, here());
  ASSERT_TRUE(recompute(g.graph, 8 * kBytes).ok());
  EXPECT_EQ(count_op(g.graph, "Tick"), 1);
  EXPECT_GT(count_op(g.graph, "Add"), 33);
}

TEST_F(Recompute, BranchesAreLeftAlone) {
  Output pred = g.add("Less", {g.constant(1, here()), g.constant(2, here())}, here());
  Output branch = g.add("Switch", {fed_, pred}, here());
  g.fetch(network(32, g.add("Merge", {branch, Output{branch.node, 1}}, here())), 0, here());
  EXPECT_EQ(check(4 * kBytes).nodes, 0);
}

TEST_F(Recompute, UnknownSizesAreToldAndNotGuessed) {
  Output x = g.feed(DType::kInt32, 0, here());
  Output y = mul(g.add("Add", {x, x}, here()), x);
  g.fetch(y, 0, here());
  const MemoryEstimate estimate = estimate_memory(g.graph).value();
  EXPECT_EQ(estimate.peak_bytes, 0);
  EXPECT_EQ(estimate.unknown, 3);
  EXPECT_EQ(check(1).nodes, 0);
}

TEST_F(Recompute, TheEstimateNamesWhatIsLarge) {
  Output small = g.constant(2, here());
  Output big = g.add("Add", {fed_, small}, {.device = devices[0]->name(), .name = "big"});
  g.fetch(mul(big, g.add("Add", {big, small}, here())), 0, here());
  const MemoryEstimate estimate = estimate_memory(g.graph).value();
  EXPECT_EQ(estimate.at_peak[0].bytes, kBytes);
  EXPECT_NE(to_string(estimate, g.graph).find("4000 Add big:0"), std::string::npos)
      << to_string(estimate, g.graph);
}

}  // namespace
}  // namespace millrace
