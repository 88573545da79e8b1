#include "millrace/runtime/optimize.h"

#include <gtest/gtest.h>

#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

class SemanticsOfOptimizing : public testing::Test {
 protected:
  SemanticsOfOptimizing() : devices_(toy_devices(1)) {
    options_.kernels = &ToyOps::get().kernels;
    options_.cpu = devices_[0].get();
  }
  std::vector<Ref<Device>> devices_;
  OptimizeOptions options_;
  ToyGraph g;
};

TEST_F(SemanticsOfOptimizing, FoldsWhatDependsOnConstantsAlone) {
  Output x = g.feed(DType::kInt32, 0);
  Output sum = g.add("Add", {g.constant(2), g.constant(3)}, {.device = "/cpu:0", .name = "sum"});
  Output product = g.add("Mul", {sum, sum}, {.device = "/cpu:0", .name = "product"});
  g.fetch(g.add("Add", {x, product}, {.name = "result"}), 0);
  EXPECT_TRUE(fold_constants(g.graph, options_).value());
  const SubNode& folded = g.graph.node(g.node("result").inputs[1].node);
  EXPECT_EQ(folded.op->name, "Const");
  EXPECT_EQ(folded.name, "product__cf__0");
  EXPECT_EQ(g.graph.device_name(folded), "/cpu:0");
  EXPECT_EQ(folded.attr<Tensor>("value").value().item<int32_t>(), 25);
  EXPECT_FALSE(fold_constants(g.graph, options_).value());
  EXPECT_TRUE(remove_dead_nodes(g.graph, options_).value());
  EXPECT_EQ(g.graph.size(), 4);
}

TEST_F(SemanticsOfOptimizing, FoldsEachOutputUsedOutside) {
  Output x = g.feed(DType::kInt32, 0);
  Output both = g.add("KeepAndFlip", {g.constant(5)}, {.name = "both"});
  g.fetch(g.add("Add", {x, both}, {.name = "a"}), 0);
  g.fetch(g.add("Add", {x, Output{both.node, 1}}, {.name = "b"}), 1);
  EXPECT_TRUE(fold_constants(g.graph, options_).value());
  auto value = [&](const char* name) {
    return g.graph.node(g.node(name).inputs[1].node).attr<Tensor>("value").value().item<int32_t>();
  };
  EXPECT_EQ(value("a"), 5);
  EXPECT_EQ(value("b"), ~5);
}

TEST_F(SemanticsOfOptimizing, LeavesWhatIsNotConstant) {
  Output x = g.feed(DType::kInt32, 0);
  Output tick = g.add("Tick", {});
  Output a = g.add("Add", {x, x});
  Output b = g.add("Add", {tick, tick});
  Output branch = g.add("Switch", {g.constant(1), g.constant(Tensor::scalar(true))});
  Output late = g.constant(1, {.after = {x.node}});
  Output c = g.add("Add", {late, late});
  Output failing = g.add("Fail", {g.constant(1)});
  Output other = g.add("Identity", {g.constant(1)}, {.device = "/device:GPU:0"});
  Output after = g.add("Identity", {g.constant(1)}, {.after = {tick.node}});
  int position = 0;
  for (Output o : {a, b, Output{branch.node, 1}, c, failing, other, after}) g.fetch(o, position++);
  EXPECT_FALSE(fold_constants(g.graph, options_).value());
}

TEST_F(SemanticsOfOptimizing, LargeResultsStayButTheirInputsFold) {
  options_.max_constant_bytes = 8;
  Output v = g.constant(Tensor::vector<int32_t>({1, 2}));
  Output w = g.add("Add", {v, v}, {.name = "w"});
  Output big = g.constant(Tensor::vector<int32_t>({1, 2, 3}));
  Output sum = g.add("Add", {big, big}, {.name = "sum"});
  g.fetch(w, 0);
  g.fetch(sum, 1);
  g.fetch(g.add("SizeOf", {sum}, {.name = "size"}), 2);
  EXPECT_TRUE(fold_constants(g.graph, options_).value());
  EXPECT_TRUE(remove_dead_nodes(g.graph, options_).value());
  EXPECT_EQ(count_op(g.graph, "Add"), 1);
  EXPECT_EQ(g.node("sum").op->name, "Add");
  EXPECT_EQ(count_op(g.graph, "SizeOf"), 0);
}

TEST_F(SemanticsOfOptimizing, FoldingHoldsNoMoreMemoryThanConstantsAreWorth) {
  g.fetch(g.add("SizeOf", {g.add("Large", {g.constant(1)})}, {.name = "small"}), 0);
  g.fetch(g.add("SizeOf", {g.add("Large", {g.constant(1 << 10)})}, {.name = "large"}), 1);
  EXPECT_TRUE(fold_constants(g.graph, options_).value());
  EXPECT_TRUE(remove_dead_nodes(g.graph, options_).value());
  EXPECT_EQ(count_op(g.graph, "SizeOf"), 1);
  EXPECT_EQ(g.node("large").op->name, "SizeOf");
}

TEST_F(SemanticsOfOptimizing, FoldingGivesUpWhatTakesTooLong) {
  options_.max_folding_ms = 20;
  Output many = g.constant(Tensor::zeros(DType::kInt32, Shape({1 << 16})).value());
  g.fetch(g.add("Endless", {many}), 0);
  g.fetch(g.add("Add", {g.constant(1), g.constant(2)}), 1);
  (void)fold_constants(g.graph, options_).value();
  EXPECT_EQ(count_op(g.graph, "Endless"), 1);
}

TEST_F(SemanticsOfOptimizing, WhatFactsTellIsNotComputed) {
  Output x = g.add("_Arg", {},
                   {{"T", DType::kInt32}, {"index", 0}, {kFeedShapeAttr, PartialShape{2, 3}}}, {});
  Output unknown = g.feed(DType::kInt32, 1);
  NodeId tick = g.add("Tick", {}).node;
  Output doubled = g.add("Add", {x, x});
  g.fetch(g.add("SizeOf", {doubled}, {.name = "known"}), 0);
  g.fetch(g.add("SizeOf", {doubled}, {.after = {tick}, .name = "later"}), 1);
  g.fetch(g.add("SizeOf", {unknown}, {.name = "unknown"}), 2);
  // One that may be dead has no value then.
  Output branch = g.add("Switch", {x, g.add("Less", {unknown, unknown})});
  g.fetch(g.add("SizeOf", {branch}, {.name = "maybe"}), 3);
  EXPECT_TRUE(take_known_values(g.graph, options_).value());
  auto source = [&](int position) -> const SubNode& {
    const SubNode* found = nullptr;
    for (const SubNode& node : g.graph.nodes()) {
      if (node.op->name == "_Retval" && node.attr<int64_t>("index").value() == position) {
        found = &g.graph.node(node.inputs[0].node);
      }
    }
    return *found;
  };
  EXPECT_EQ(source(0).attr<Tensor>("value").value().item<int32_t>(), 6);
  EXPECT_TRUE(source(0).control_inputs.empty());
  EXPECT_EQ(source(1).control_inputs, std::vector<NodeId>{tick});
  EXPECT_EQ(source(2).name, "unknown");
  EXPECT_EQ(source(3).name, "maybe");
  EXPECT_FALSE(take_known_values(g.graph, options_).value());
  // Nothing needs what was only measured.
  EXPECT_TRUE(remove_dead_nodes(g.graph, options_).value());
  EXPECT_EQ(count_op(g.graph, "Add"), 0);
}

TEST_F(SemanticsOfOptimizing, NobodyWaitsForAFoldedNode) {
  Output sum = g.add("Add", {g.constant(1), g.constant(2)});
  g.add("Tick", {}, {.after = {sum.node}, .name = "tick"});
  EXPECT_TRUE(fold_constants(g.graph, options_).value());
  EXPECT_TRUE(g.node("tick").control_inputs.empty());
}

TEST_F(SemanticsOfOptimizing, MergesEqualExpressions) {
  Output x = g.feed(DType::kInt32, 0), y = g.feed(DType::kInt32, 1);
  Output a = g.add("Add", {x, y}, {.name = "a"});
  Output b = g.add("Add", {y, x}, {.name = "b"});
  Output c = g.add("Sub", {x, y}, {.name = "c"});
  Output d = g.add("Sub", {y, x}, {.name = "d"});
  Output e = g.add("Mul", {a, c}, {.name = "e"});
  Output f = g.add("Mul", {c, b}, {.name = "f"});
  int position = 0;
  for (Output o : {d, e, f}) g.fetch(o, position++);
  EXPECT_TRUE(merge_common_subexpressions(g.graph, options_).value());
  EXPECT_EQ(count_op(g.graph, "Add"), 1);
  EXPECT_EQ(count_op(g.graph, "Sub"), 2);
  EXPECT_EQ(count_op(g.graph, "Mul"), 1);
  EXPECT_FALSE(merge_common_subexpressions(g.graph, options_).value());
}

// The bits of a float may tell which input came first.
TEST_F(SemanticsOfOptimizing, SwapsNoFloats) {
  Output x = g.feed(DType::kFloat, 0), y = g.feed(DType::kFloat, 1);
  g.fetch(g.add("Add", {x, y}), 0);
  g.fetch(g.add("Add", {y, x}), 1);
  EXPECT_FALSE(merge_common_subexpressions(g.graph, options_).value());
}

TEST_F(SemanticsOfOptimizing, MergesNothingThatDiffers) {
  Output x = g.feed(DType::kInt32, 0);
  g.add("Tick", {});
  Output tick = g.add("Tick", {});
  g.add("Identity", {x}, {.device = "/cpu:0"});
  g.add("Identity", {x}, {.device = "/cpu:1"});
  g.add("Identity", {x}, {.device = "/cpu:1", .after = {tick.node}});
  g.constant(1);
  g.constant(2);
  g.constant(Tensor::scalar(0.0f));
  g.constant(Tensor::scalar(-0.0f));
  g.constant(Tensor::vector<int32_t>({1}));
  Output pred = g.constant(Tensor::scalar(true));
  g.add("Switch", {x, pred});
  g.add("Switch", {x, pred});
  Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {});
  g.add("Identity", {v});
  g.add("Identity", {v});
  EXPECT_FALSE(merge_common_subexpressions(g.graph, options_).value());
}

TEST_F(SemanticsOfOptimizing, KeepsTargetsStateAndWhatTheyNeed) {
  Output x = g.constant(1, {.name = "x"});
  Output waited = g.constant(2, {.name = "waited"});
  g.add("Identity", {x}, {{std::string(kTargetAttr), true}},
        {.after = {waited.node}, .name = "target"});
  g.add("Tick", {}, {.name = "tick"});
  g.add("Identity", {x}, {.name = "unused"});
  EXPECT_TRUE(remove_dead_nodes(g.graph, options_).value());
  EXPECT_EQ(g.graph.size(), 4);
  EXPECT_EQ(node_named(g.graph, "target").control_inputs.size(), 1u);
  EXPECT_FALSE(remove_dead_nodes(g.graph, options_).value());
}

TEST_F(SemanticsOfOptimizing, RoundsRepeatUntilNothingChanges) {
  // Folding makes two equal constants, merging makes their sums equal.
  Output x = g.feed(DType::kInt32, 0);
  Output a = g.add("Add", {x, g.add("Add", {g.constant(1), g.constant(3)})});
  Output b = g.add("Add", {x, g.add("Mul", {g.constant(2), g.constant(2)})});
  g.fetch(a, 0);
  g.fetch(b, 1);
  Subgraph untouched = g.graph;
  ASSERT_TRUE(optimize(g.graph, options_).ok());
  EXPECT_EQ(g.graph.size(), 5);
  options_.level = 0;
  int size = untouched.size();
  ASSERT_TRUE(optimize(untouched, options_).ok());
  EXPECT_EQ(untouched.size(), size);
}

TEST_F(SemanticsOfOptimizing, SwitchesTurnPassesOff) {
  g.fetch(g.add("Add", {g.constant(1), g.constant(1)}), 0);
  options_.disabled_passes = {"constant_folding", "common_subexpressions"};
  const int size = g.graph.size();
  ASSERT_TRUE(optimize(g.graph, options_).ok());
  EXPECT_EQ(g.graph.size(), size);
  options_.disabled_passes.pop_back();
  setenv("MILLRACE_DISABLE_PASSES", "dead_nodes,common_subexpressions", /*overwrite=*/1);
  ASSERT_TRUE(optimize(g.graph, options_).ok());
  EXPECT_EQ(g.graph.size(), size);
  unsetenv("MILLRACE_DISABLE_PASSES");
  ASSERT_TRUE(optimize(g.graph, options_).ok());
  EXPECT_EQ(g.graph.size(), size - 1);
}

TEST_F(SemanticsOfOptimizing, PassesThatDoNotExistAreAnsweredWithThoseThatDo) {
  ToyGraph g;
  options_.disabled_passes = {"constant_holding"};
  const Status status = optimize(g.graph, options_);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("'constant_holding'"), std::string_view::npos);
  EXPECT_NE(status.message().find("constant_folding, common_subexpressions"),
            std::string_view::npos);
  options_.disabled_passes = {};
  setenv("MILLRACE_DISABLE_PASSES", "no_such_pass", /*overwrite=*/1);
  EXPECT_EQ(optimize(g.graph, options_).code(), Code::kInvalidArgument);
  unsetenv("MILLRACE_DISABLE_PASSES");
}

}  // namespace
}  // namespace millrace
