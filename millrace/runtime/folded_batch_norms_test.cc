#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "millrace/runtime/optimize.h"
#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

class FoldedBatchNorms : public testing::Test {
 protected:
  FoldedBatchNorms() {
    options_.kernels = &ToyOps::get().kernels;
    options_.cpu = devices_[0].get();
  }
  ToyPlace on(std::string name = {}, std::vector<NodeId> after = {}) {
    return {.device = devices_[0]->name(), .after = std::move(after), .name = std::move(name)};
  }
  Output row(std::initializer_list<int32_t> values) {
    return g.constant(Tensor::vector<int32_t>(values), on());
  }
  Output feed(const Shape& shape, std::string name = {}) {
    return g.add("_Arg", {},
                 {{"T", DType::kInt32}, {"index", feeds_++}, {kFeedShapeAttr, PartialShape(shape)}},
                 on(std::move(name)));
  }
  // x with 2 columns by a constant of 2 x 3.
  Output product(const Shape& shape = {4, 2}) {
    const Tensor weights = Tensor::of<int32_t>(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
    return g.add("Product", {feed(shape), g.constant(weights, on("weights"))}, on("product"));
  }
  // Of the columns of x: (x - 1) * (2, 3, 4) + 10.
  Output normalized(Output x) {
    Output y = g.add("Sub", {x, row({1, 1, 1})}, on("centred"));
    y = g.add("Mul", {row({2, 3, 4}), y}, on("scaled"));
    return g.add("Add", {y, row({10, 10, 10})}, on("shifted"));
  }
  Output normalize(Output x, AttrMap attrs = {}) {
    return g.add("Normalize", {x, row({2, 3, 4}), row({5, 6, 7})}, std::move(attrs), on("norm"));
  }
  bool rewrite() { return fold_batch_norms(g.graph, options_).value(); }
  void fold_rest() {
    (void)fold_constants(g.graph, options_).value();
    (void)remove_dead_nodes(g.graph, options_).value();
  }
  std::vector<Tensor> run(std::vector<Tensor> feeds, int fetches = 1) {
    const auto out = run_toy(g.graph, devices_, std::move(feeds), fetches);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? *out : std::vector<Tensor>();
  }
  std::vector<Ref<Device>> devices_ = toy_devices(1);
  OptimizeOptions options_;
  ToyGraph g;
  int feeds_ = 0;
};

TEST_F(FoldedBatchNorms, LeaveAFilterAndASum) {
  g.fetch(normalized(product({1, 2})), 0, on());
  ASSERT_TRUE(rewrite());
  EXPECT_FALSE(rewrite());
  fold_rest();
  EXPECT_EQ(count_op(g.graph, "Sub") + count_op(g.graph, "Mul") + count_op(g.graph, "Add"), 0);
  EXPECT_EQ(g.node("product").attr<std::string>(kInFilterAttr).value(),
            "has centred, scaled, shifted in its filter");
  // What is left has the name of the last.
  const SubNode& sum = g.node("shifted");
  EXPECT_EQ(sum.op->name, "AddV2");
  const SubNode& filter = g.graph.node(g.node("product").inputs[1].node);
  ASSERT_EQ(filter.op->name, "Const");
  EXPECT_TRUE(bit_equal(filter.attr<Tensor>("value").value(),
                        Tensor::of<int32_t>(Shape{2, 3}, {2, 6, 12, 8, 15, 24})));
  const SubNode& shift = g.graph.node(sum.inputs[1].node);
  ASSERT_EQ(shift.op->name, "Const");
  EXPECT_TRUE(
      bit_equal(shift.attr<Tensor>("value").value(), Tensor::of<int32_t>(Shape{1, 3}, {8, 7, 6})));
  EXPECT_TRUE(bit_equal(run({Tensor::of<int32_t>(Shape{1, 2}, {1, -2})})[0],
                        Tensor::of<int32_t>(Shape{1, 3}, {2 - 16 + 8, 6 - 30 + 7, 12 - 48 + 6})));
}

TEST_F(FoldedBatchNorms, OnesWithoutAShiftLeaveNothing) {
  const Output y = g.add("Mul", {product(), row({2, 3, 4})}, on("scaled"));
  g.fetch(g.add("Mul", {y, g.constant(5, on())}, on("twice")), 0, on("fetch"));
  const Output tick = g.add("Tick", {}, on("before"));
  g.graph.node(y.node).control_inputs = {tick.node};
  g.add("Tick", {}, on("after", {g.graph.node(g.node("fetch").inputs[0].node).control_inputs}));
  ASSERT_TRUE(rewrite());
  const SubNode& product = g.graph.node(g.node("fetch").inputs[0].node);
  EXPECT_EQ(product.name, "product");
  // What a link waited for, its filter's product waits for.
  ASSERT_EQ(product.control_inputs.size(), 1u);
  EXPECT_EQ(g.graph.node(product.control_inputs[0]).name, "before");
}

TEST_F(FoldedBatchNorms, WhoWaitsForTheLastWaitsForWhatIsLeft) {
  const Output tick = g.add("Tick", {}, on("before"));
  const Output x = product();
  const Output first = g.add("Mul", {x, row({2, 3, 4})}, on("scaled", {tick.node}));
  const Output last = g.add("Sub", {first, row({1, 2, 3})}, on("last"));
  g.fetch(last, 0, on());
  g.add("Tick", {}, on("after", {last.node}));
  ASSERT_TRUE(rewrite());
  ASSERT_EQ(g.node("last").control_inputs.size(), 1u);
  EXPECT_EQ(g.graph.node(g.node("last").control_inputs[0]).name, "before");
  ASSERT_EQ(g.node("after").control_inputs.size(), 1u);
  EXPECT_EQ(g.graph.node(g.node("after").control_inputs[0]).name, "last");
}

TEST_F(FoldedBatchNorms, WhatOthersReadStays) {
  const Output x = product();
  g.fetch(normalized(x), 0, on());
  g.fetch(x, 1, on());
  EXPECT_FALSE(rewrite());
}

TEST_F(FoldedBatchNorms, WhatOthersWaitForStays) {
  const Output x = product();
  g.fetch(normalized(x), 0, on());
  g.add("Tick", {}, on("waits", {x.node}));
  EXPECT_FALSE(rewrite());
}

TEST_F(FoldedBatchNorms, EndWhereOthersRead) {
  const Output x = normalized(product());
  const Output y = g.add("Mul", {x, row({1, 2, 3})}, on("more"));
  g.fetch(y, 0, on());
  g.fetch(x, 1, on());
  ASSERT_TRUE(rewrite());
  EXPECT_EQ(g.node("shifted").op->name, "AddV2");
  EXPECT_EQ(g.node("more").op->name, "Mul");
}

TEST_F(FoldedBatchNorms, TargetsKeepTheirNames) {
  const Output x = product();
  const Output y = g.add("Mul", {x, row({1, 2, 3})}, {{std::string(kTargetAttr), true}}, on("y"));
  g.fetch(y, 0, on());
  EXPECT_FALSE(rewrite());
  g.graph.node(x.node).set_attr(kTargetAttr, true);
  g.fetch(normalized(y), 1, on());
  EXPECT_FALSE(rewrite());
}

TEST_F(FoldedBatchNorms, ATargetAtTheEndStaysOne) {
  g.fetch(normalized(product()), 0, on());
  const auto last = std::ranges::find(g.graph.nodes(), "shifted", &SubNode::name);
  last->set_attr(kTargetAttr, true);
  ASSERT_TRUE(rewrite());
  EXPECT_NE(g.node("shifted").attrs->find(kTargetAttr), nullptr);
}

TEST_F(FoldedBatchNorms, WhatDiffersByRowStays) {
  const Output rows = g.constant(Tensor::of<int32_t>(Shape{4, 1}, {1, 2, 3, 4}), on());
  g.fetch(g.add("Mul", {product(), rows}, on()), 0, on());
  EXPECT_FALSE(rewrite());
}

TEST_F(FoldedBatchNorms, ShiftsAloneStay) {
  g.fetch(g.add("Add", {g.add("Sub", {product(), row({1, 2, 3})}, on()), row({3, 2, 1})}, on()), 0,
          on());
  EXPECT_FALSE(rewrite());
}

TEST_F(FoldedBatchNorms, StatisticsOfTheBatchStay) {
  g.fetch(normalize(product(), {{"is_training", true}}), 0, on());
  EXPECT_FALSE(rewrite());
}

TEST_F(FoldedBatchNorms, OtherOutputsThatAreReadStay) {
  const Output y = normalize(product());
  g.fetch(y, 0, on());
  g.fetch({y.node, 1}, 1, on());
  EXPECT_FALSE(rewrite());
}

TEST_F(FoldedBatchNorms, OtherDevicesStay) {
  const Output y =
      g.add("Mul", {product(), row({1, 2, 3})}, {.device = "/job:worker/replica:0/task:0/cpu:1"});
  g.fetch(y, 0, on());
  EXPECT_FALSE(rewrite());
}

// A filter that is computed in every step: two elements by three, of an image of so many rows.
class VariableFilters : public FoldedBatchNorms {
 protected:
  bool folds(int64_t rows, bool fused) {
    g = ToyGraph();
    feeds_ = 0;
    const Output x = feed(Shape{rows, 2}), filter = feed(Shape{2, 3});
    Output y = g.add("Product", {x, filter}, on("product"));
    y = fused ? g.add("Mul", {y, row({2, 3, 4})}, on()) : normalize(y);
    g.fetch(y, 0, on());
    return rewrite();
  }
};

TEST_F(VariableFilters, AreScaledWhereTheyAreSmall) {
  EXPECT_TRUE(folds(3, false));
  EXPECT_FALSE(folds(2, false));
  std::vector<Tensor> feeds = {Tensor::of<int32_t>(Shape{2, 2}, {1, 2, 3, 4}),
                               Tensor::of<int32_t>(Shape{2, 3}, {1, 2, 3, 4, 5, 6})};
  const Tensor expected = run(feeds)[0];
  ASSERT_TRUE(folds(3, false));
  EXPECT_TRUE(bit_equal(run(feeds)[0], expected));
}

TEST_F(VariableFilters, AreLeftToElementwiseOps) { EXPECT_FALSE(folds(100, true)); }

TEST_F(VariableFilters, OfUnknownSizeStay) {
  const Output x = g.feed(DType::kInt32, 0, on()), filter = g.feed(DType::kInt32, 1, on());
  g.fetch(normalize(g.add("Product", {x, filter}, on())), 0, on());
  EXPECT_FALSE(rewrite());
}

TEST_F(FoldedBatchNorms, ConstantsThatAreNotFoldedStay) {
  options_.max_constant_bytes = 20;
  g.fetch(normalized(product()), 0, on());
  EXPECT_FALSE(rewrite());
  options_.max_constant_bytes = 24;
  EXPECT_TRUE(rewrite());
}

TEST_F(FoldedBatchNorms, LoopsStay) {
  const AttrMap frame = {{"frame_name", "f"}}, kept = {{"frame_name", "f"}, {"is_constant", true}};
  const Output x = g.add("Enter", {feed(Shape{4, 2})}, frame, on());
  const Tensor weights = Tensor::of<int32_t>(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  const Output filter = g.constant(weights, on("inside", {x.node}));
  const Output product = g.add("Product", {x, filter}, on());
  const Output y =
      g.add("Normalize",
            {product, g.constant(Tensor::vector<int32_t>({1, 2, 3}), on("a", {x.node})),
             g.add("Enter", {row({1, 2, 3})}, kept, on())},
            on());
  g.fetch(g.add("Exit", {y}, on()), 0, on());
  EXPECT_FALSE(rewrite());
}

}  // namespace
}  // namespace millrace
