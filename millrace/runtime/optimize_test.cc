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

class FoldedTransposes : public SemanticsOfOptimizing {
 protected:
  FoldedTransposes() {
    x_ = g.feed(DType::kInt32, 0);
    y_ = g.feed(DType::kInt32, 1);
  }
  Output transposed(Output x, std::vector<int32_t> order = {1, 0}, ToyPlace place = {}) {
    return g.add("Permute", {x, g.constant(Tensor::vector<int32_t>(order))}, place);
  }
  // Whether the pass had it read something else, and with which attributes.
  std::string folded(Output x, Output y) {
    const Output z = g.add("Product", {x, y}, {{"transpose_x", true}}, {});
    EXPECT_TRUE(fold_transposes(g.graph, options_).ok());
    const SubNode& node = g.graph.node(z.node);
    const auto operand = [&](size_t i, Output before, const char* attr) {
      return str_cat(node.inputs[i] == before ? "as before " : "folded ",
                     *node.attr<bool>(attr) ? "transposed" : "plain");
    };
    return str_cat(operand(0, x, "transpose_x"), ", ", operand(1, y, "transpose_y"));
  }
  Output x_, y_;
};

TEST_F(FoldedTransposes, AreDoneByTheProduct) {
  EXPECT_EQ(folded(transposed(x_), y_), "folded plain, as before plain");
  EXPECT_EQ(folded(x_, transposed(y_)), "as before transposed, folded transposed");
  EXPECT_EQ(folded(transposed(x_, {-1, -2}), transposed(y_)), "folded plain, folded transposed");
}

TEST_F(FoldedTransposes, StayWhereSomethingElseIsMeant) {
  const std::string as_before = "as before transposed, as before plain";
  EXPECT_EQ(folded(transposed(x_, {0, 1}), y_), as_before);
  EXPECT_EQ(folded(transposed(x_, {0, 2, 1}), y_), as_before);
  EXPECT_EQ(folded(x_, transposed(y_, {1, 0}, {.device = "/cpu:7"})), as_before);
  EXPECT_EQ(folded(x_, transposed(y_, {1, 0}, {.after = {x_.node}})), as_before);
  EXPECT_EQ(folded(g.add("Permute", {x_, g.feed(DType::kInt32, 2)}), y_), as_before);
  const Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {});
  EXPECT_EQ(folded(transposed(v), y_), as_before);
}

class SumsOfProducts : public SemanticsOfOptimizing {
 protected:
  SumsOfProducts() {
    for (int i = 0; i < 4; ++i) x_.push_back(g.feed(DType::kInt32, i, on()));
  }
  ToyPlace on(std::string name = {}) { return {.device = devices_[0]->name(), .name = name}; }
  Output product(int i, int j, std::string name = {}) {
    return g.add("Mul", {x_[static_cast<size_t>(i)], x_[static_cast<size_t>(j)]}, on(name));
  }
  bool rewrite() { return sum_products_at_once(g.graph, options_).value(); }
  std::vector<Output> inputs(std::string_view name) { return g.node(name).inputs; }
  std::vector<Output> x_;
};

TEST_F(SumsOfProducts, AreOneNode) {
  g.fetch(g.add("SumAll", {product(0, 1), product(2, 3), product(1, 1)}, on("sum")), 0, on());
  ASSERT_TRUE(rewrite());
  ASSERT_EQ(inputs("sum").size(), 1u);
  EXPECT_EQ(g.node("sum").attr<int64_t>("N").value(), 1);
  EXPECT_EQ(g.node("sum").input_types.size(), 1u);
  const SubNode& products = g.graph.node(inputs("sum")[0].node);
  EXPECT_EQ(products.op->name, "SumOfMul");
  // Left factors, then right ones.
  EXPECT_EQ(products.inputs, (std::vector<Output>{x_[0], x_[2], x_[1], x_[1], x_[3], x_[1]}));
  EXPECT_FALSE(rewrite());
  ASSERT_TRUE(remove_dead_nodes(g.graph, options_).value());
  EXPECT_EQ(count_op(g.graph, "Mul"), 0);
  const auto out =
      run_toy(g.graph, devices_,
              {Tensor::scalar(2), Tensor::scalar(3), Tensor::scalar(5), Tensor::scalar(7)}, 1);
  EXPECT_EQ((*out)[0].item<int32_t>(), 6 + 35 + 9);
}

TEST_F(SumsOfProducts, ReachIntoSumsThatAreOnlyPartsOfThem) {
  const Output part = g.add("SumAll", {product(0, 1), x_[3]}, on("part"));
  const Output shared = g.add("SumAll", {product(0, 3), product(1, 3)}, on("shared"));
  g.fetch(g.add("SumAll", {product(2, 2), part, shared}, on("sum")), 0, on());
  g.fetch(shared, 1, on());
  ASSERT_TRUE(rewrite());
  ASSERT_EQ(inputs("sum").size(), 1u);
  EXPECT_EQ(g.graph.node(inputs("sum")[0].node).inputs,
            (std::vector<Output>{shared, x_[3], x_[2], x_[0], x_[2], x_[1]}));
  EXPECT_EQ(inputs("shared").size(), 1u);
}

TEST_F(SumsOfProducts, LeaveProductsThatOthersNeed) {
  const Output fetched = product(0, 1), waited = product(1, 2);
  const Output elsewhere = g.add("Mul", {x_[0], x_[2]}, {.device = "/cpu:7"});
  const Output target = g.add("Mul", {x_[2], x_[3]}, {{std::string(kTargetAttr), true}}, on());
  g.fetch(g.add("SumAll", {fetched, waited, elsewhere, target, product(3, 3)}, on("sum")), 0, on());
  g.fetch(fetched, 1, on());
  g.fetch(g.add("Identity", {x_[0]}, {.device = devices_[0]->name(), .after = {waited.node}}), 2,
          on());
  EXPECT_FALSE(rewrite());
  EXPECT_EQ(inputs("sum").size(), 5u);
}

TEST_F(SumsOfProducts, WaitForWhatProductsAndPartsWaitedFor) {
  const std::string cpu = devices_[0]->name();
  const Output a = g.add("Tick", {}, on("a")), b = g.add("Tick", {}, on("b"));
  const Output late = g.add("Mul", {x_[0], x_[1]}, {.device = cpu, .after = {a.node}});
  const Output part = g.add("SumAll", {x_[3], late}, {.device = cpu, .after = {b.node}});
  g.fetch(g.add("SumAll", {part, product(1, 2)}, on("sum")), 0, on());
  ASSERT_TRUE(rewrite());
  EXPECT_EQ(g.graph.node(inputs("sum")[0].node).control_inputs, std::vector<NodeId>{a.node});
  EXPECT_EQ(g.node("sum").control_inputs, std::vector<NodeId>{b.node});
}

// What branches and loops bring is added to where it lies, even if by one product alone.
TEST_F(SumsOfProducts, TakeTheirOtherTerms) {
  const Output pred = g.constant(Tensor::scalar(true), on());
  const Output branch = g.add("Switch", {x_[0], pred}, on());
  const Output yes = {branch.node, 1};
  const Output square = g.add("Mul", {yes, yes}, on());
  g.fetch(g.add("SumAll", {yes, square}, on("sum")), 0, on());
  g.fetch(g.add("SumAll", {x_[1], product(1, 2)}, on("other")), 1, on());
  ASSERT_TRUE(rewrite());
  EXPECT_EQ(inputs("other").size(), 2u);
  EXPECT_EQ(g.graph.node(inputs("sum")[0].node).inputs, (std::vector<Output>{yes, yes, yes}));
}

TEST_F(SumsOfProducts, NeedAKernel) {
  const Output x = g.feed(DType::kFloat, 4, on());
  const auto square = [&] { return g.add("Mul", {x, x}, on()); };
  g.fetch(g.add("SumAll", {square(), square()}, on("sum")), 0, on());
  EXPECT_FALSE(rewrite());
}

TEST_F(SumsOfProducts, DoNotReadVariablesLater) {
  const Output v = g.add("Var", {}, {{"T", DType::kInt32}}, on());
  const auto square = [&] { return g.add("Mul", {v, v}, {{"T", DType::kInt32}}, on()); };
  g.fetch(g.add("SumAll", {square(), square()}, on("sum")), 0, on());
  g.fetch(g.add("SumAll", {v, product(0, 1), product(1, 2)}, {{"T", DType::kInt32}}, on()), 1,
          on());
  EXPECT_FALSE(rewrite());
}

TEST_F(SumsOfProducts, MayHaveManyParts) {
  Output sum = product(0, 1);
  for (int i = 0; i < 20'000; ++i) sum = g.add("SumAll", {product(2, 3), sum}, on());
  g.fetch(sum, 0, on());
  ASSERT_TRUE(rewrite());
  ASSERT_TRUE(remove_dead_nodes(g.graph, options_).value());
  EXPECT_EQ(count_op(g.graph, "SumAll"), 1);
}

TEST_F(SemanticsOfOptimizing, ApproximatesWhereThereIsAKernel) {
  const Output x = g.feed(DType::kInt32, 0);
  const AttrMap attrs = {{"transpose_x", true}};
  const Output waits = g.add("Tick", {});
  g.add("Product", {x, x}, attrs,
        {.device = devices_[0]->name(), .after = {waits.node}, .name = "here"});
  g.add("Product", {x, x}, attrs, {.device = "/device:GPU:0", .name = "elsewhere"});
  g.add("Mul", {x, x}, {.device = devices_[0]->name(), .name = "other"});
  EXPECT_TRUE(approximate(g.graph, options_).value());
  EXPECT_EQ(g.node("here").op->name, "CloseProduct");
  EXPECT_TRUE(*g.node("here").attr<bool>("transpose_x"));
  EXPECT_EQ(g.node("here").inputs, (std::vector<Output>{x, x}));
  EXPECT_EQ(g.node("here").control_inputs, std::vector<NodeId>{waits.node});
  EXPECT_EQ(g.node("elsewhere").op->name, "Product");
  EXPECT_EQ(g.node("other").op->name, "Mul");
  EXPECT_FALSE(approximate(g.graph, options_).value());
}

}  // namespace
}  // namespace millrace
