#include <gtest/gtest.h>

#include "millrace/graph/elementwise_tree.h"
#include "millrace/runtime/optimize.h"
#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

using Names = std::vector<std::string>;

class FuseElementwise : public testing::Test {
 protected:
  FuseElementwise() : devices_(toy_devices(1)) { options_.kernels = &ToyOps::get().kernels; }

  bool fuse() { return fuse_elementwise(g.graph, options_).value(); }
  // What the node called `name` stands for.
  Names members(std::string_view name) const {
    const Result<Names> names = g.node(name).attr<Names>(kStandsForAttr);
    return names.ok() ? *names : Names();
  }
  std::string note(std::string_view name) const {
    const Result<std::string> why = g.node(name).attr<std::string>(kNotFusedAttr);
    return why.ok() ? *why : "";
  }
  Output add(Output a, Output b, std::string name, std::vector<NodeId> after = {}) {
    return g.add("Add", {a, b}, {.after = std::move(after), .name = std::move(name)});
  }

  Output fold(Output x, std::vector<int32_t> axes, bool keep_dims, std::string name) {
    Output list = g.constant(Tensor::vector<int32_t>(axes));
    return g.add("SumRows", {x, list}, {{"keep_dims", keep_dims}}, {.name = std::move(name)});
  }

  std::vector<Tensor> run(std::vector<Tensor> feeds, int fetches) {
    const DeviceId device = g.graph.devices().intern(devices_[0]->name());
    for (SubNode& node : g.graph.nodes()) node.device = device;
    return run_toy(g.graph, devices_, std::move(feeds), fetches).value();
  }

  std::vector<Ref<Device>> devices_;
  OptimizeOptions options_;
  ToyGraph g;
};

TEST_F(FuseElementwise, ATreeBecomesTheNodeOfItsRoot) {
  Output x = g.feed(DType::kFloat, 0), y = g.feed(DType::kFloat, 1);
  Output a = add(x, y, "a"), b = add(y, y, "b");
  Output c = g.add("Mul", {a, b}, {.name = "c"});
  g.fetch(g.add("Less", {c, x}, {.name = "d"}), 0);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("d"), (Names{"b", "a", "c", "d"}));
  const SubNode& d = g.node("d");
  EXPECT_EQ(d.op->name, "_FusedToys");
  EXPECT_EQ(d.inputs.size(), 2u);
  EXPECT_EQ(d.output_types, std::vector<DType>{DType::kBool});
  EXPECT_EQ(g.graph.size(), 4);
  const auto out = run({Tensor::scalar(3.0F), Tensor::scalar(2.0F)}, 1);
  EXPECT_FALSE(out[0].item<bool>());  // (3 + 2) * (2 + 2) < 3
  EXPECT_FALSE(fuse());
}

TEST_F(FuseElementwise, WhatOthersReadIsAnOutput) {
  Output x = g.feed(DType::kInt32, 0);
  Output a = add(x, x, "a"), b = add(a, x, "b"), c = add(b, a, "c");
  g.fetch(a, 0);
  g.fetch(g.add("Identity", {b}), 1);
  g.fetch(c, 2);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("c"), (Names{"a", "b", "c"}));
  EXPECT_EQ(g.node("c").output_types.size(), 3u);
  const auto out = run({Tensor::scalar<int32_t>(1)}, 3);
  EXPECT_EQ(out[0].item<int32_t>(), 2);
  EXPECT_EQ(out[1].item<int32_t>(), 3);
  EXPECT_EQ(out[2].item<int32_t>(), 5);
}

TEST_F(FuseElementwise, ClosesNoCycle) {
  // c reads a, and what the Identity makes of a.
  Output x = g.feed(DType::kInt32, 0);
  Output a = add(x, x, "a");
  Output other = g.add("Identity", {a}, {.name = "other"});
  Output c = add(a, other, "c"), d = add(c, x, "d");
  g.fetch(d, 0);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("d"), (Names{"c", "d"}));
  EXPECT_EQ(g.node("a").op->name, "Add");
  EXPECT_EQ(note("d"), "not with a: it is read by other before");
  EXPECT_TRUE(g.graph.topological_order().ok());
}

TEST_F(FuseElementwise, ClosesNoCycleThroughControlEdges) {
  Output x = g.feed(DType::kInt32, 0);
  Output a = add(x, x, "a");
  Output tick = g.add("Tick", {}, {.after = {a.node}, .name = "tick"});
  g.fetch(add(a, tick, "c"), 0);
  EXPECT_FALSE(fuse());
}

TEST_F(FuseElementwise, KeepsControlEdgesOfAllMembers) {
  Output x = g.feed(DType::kInt32, 0);
  Output before = g.add("Tick", {}, {.name = "before"});
  Output a = add(x, x, "a", {before.node}), b = add(a, x, "b");
  g.add("Tick", {}, {.after = {a.node}, .name = "after"});
  g.fetch(b, 0);
  EXPECT_TRUE(fuse());
  const SubNode& b_now = g.node("b");
  ASSERT_EQ(b_now.control_inputs.size(), 1u);
  EXPECT_EQ(g.graph.node(b_now.control_inputs[0]).name, "before");
  EXPECT_EQ(b_now.output_types.size(), 1u);
  const SubNode& after = g.node("after");
  ASSERT_EQ(after.control_inputs.size(), 1u);
  EXPECT_EQ(g.graph.node(after.control_inputs[0]).name, "b");
}

TEST_F(FuseElementwise, LeavesReferencesAndOtherDevices) {
  Output x = g.feed(DType::kInt32, 0);
  Output b = add(x, x, "b");
  Output c = g.add("Add", {b, b}, {.device = "/device:GPU:0", .name = "c"});
  Output d = g.add("Add", {c, c}, {.device = "/device:GPU:0", .name = "d"});
  Output var = g.add("Var", {}, {{"T", DType::kInt32}}, {});
  Output e = add(d, x, "e"), f = add(e, var, "f");
  g.fetch(f, 0);
  EXPECT_FALSE(fuse());
}

TEST_F(FuseElementwise, ATargetIsTheLastOfItsGroup) {
  Output x = g.feed(DType::kInt32, 0);
  Output a = add(x, x, "a");
  Output b = g.add("Add", {a, a}, {{kTargetAttr, true}}, {.name = "b"});
  g.fetch(add(b, x, "c"), 0);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("b"), (Names{"a", "b"}));
  EXPECT_NE(g.node("b").attrs->find(kTargetAttr), nullptr);
  EXPECT_EQ(note("c"), "not with b: b is a target");
}

TEST_F(FuseElementwise, FoldsOfRowsAreMembers) {
  // (x - sum of rows of x) * x, the list of dimensions counted from the end.
  Output x = g.feed(DType::kInt32, 0);
  Output sum = fold(x, {-2, -1}, true, "sum");
  Output apart = g.add("Sub", {x, sum}, {.name = "apart"});
  g.fetch(g.add("Mul", {apart, x}, {.name = "y"}), 0);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("y"), (Names{"sum", "apart", "y"}));
  EXPECT_EQ(g.node("y").attr<Names>("stages").value(),
            (Names{"SumRows keep_dims:int32", "Sub:int32", "Mul:int32"}));
  const auto out = run({Tensor::of<int32_t>(Shape{1, 3}, {1, 2, 4})}, 1);
  EXPECT_TRUE(bit_equal(out[0], Tensor::of<int32_t>(Shape{1, 3}, {-6, -10, -12})));
}

TEST_F(FuseElementwise, AFoldJoinsWhatItReads) {
  Output x = g.feed(DType::kInt32, 0);
  g.fetch(fold(add(x, x, "a"), {-1}, false, "sum"), 0);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("sum"), (Names{"a", "sum"}));
  EXPECT_TRUE(bit_equal(run({Tensor::of<int32_t>(Shape{2, 2}, {1, 2, 3, 4})}, 1)[0],
                        Tensor::vector<int32_t>({6, 14})));
}

TEST_F(FuseElementwise, FoldsOfOtherDimensionsStayOnTheirOwn) {
  Output x = g.feed(DType::kInt32, 0);
  Output matrix = g.add(
      "_Arg", {}, {{"T", DType::kInt32}, {"index", 1}, {kFeedShapeAttr, PartialShape{-1, 2}}}, {});
  Output axes = g.feed(DType::kInt32, 2);
  // The last but one, perhaps the last one, which is anybody's guess, and no list at all.
  fold(add(x, x, "a"), {-2}, false, "b");
  fold(add(x, x, "c"), {1}, false, "d");
  g.add("SumRows", {add(x, x, "e"), axes}, {.name = "f"});
  fold(add(x, x, "g"), {}, false, "h");
  EXPECT_FALSE(fuse());
  for (const char* name : {"b", "d", "f", "h"}) {
    EXPECT_EQ(note(name), "not fused: it may fold other dimensions than the last") << name;
  }
  // Of a matrix, 1 is the last one.
  fold(add(matrix, matrix, "i"), {1}, false, "j");
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("j"), (Names{"i", "j"}));
}

TEST_F(FuseElementwise, FoldsThatNoElementwiseOpReadsOrGivesStayOnTheirOwn) {
  Output x = g.add("Identity", {g.feed(DType::kInt32, 0)});
  g.fetch(fold(fold(x, {-1}, false, "a"), {-1}, false, "b"), 0);
  EXPECT_FALSE(fuse());
}

// What is read outside of a branch is alive although the branch is not taken.
TEST_F(FuseElementwise, NothingDiesOfABranch) {
  Output x = g.feed(DType::kInt32, 0), pred = g.feed(DType::kBool, 1);
  Output branch = g.add("Switch", {x, pred}, {.name = "branch"});
  Output a = add(x, x, "a"), b = add(a, branch, "b");
  Output merged = g.add("Merge", {b, Output{branch.node, 1}}, {.name = "merged"});
  g.fetch(add(merged, a, "last"), 0);
  EXPECT_FALSE(fuse());
  EXPECT_EQ(note("b"), "not with a: others read it, and it may be there when this is not");
  // The branch not taken: merged is x, a is there.
  EXPECT_EQ(run({Tensor::scalar<int32_t>(1), Tensor::scalar(true)}, 1)[0].item<int32_t>(), 3);
}

// In a partial run a fetch waits for the feeds that it needs, and for no others.
TEST_F(FuseElementwise, NothingWaitsForTheFeedsOfOthers) {
  Output x = g.feed(DType::kInt32, 0), y = g.feed(DType::kInt32, 1);
  Output a = add(x, x, "a"), b = add(a, x, "b"), c = add(b, y, "c");
  g.fetch(c, 0);
  g.fetch(g.add("Identity", {b}), 1);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("b"), (Names{"a", "b"}));
  EXPECT_EQ(g.node("c").op->name, "Add");
}

// No partial run goes by a plan that counts on the shapes of feeds.
TEST_F(FuseElementwise, FeedsOfKnownShapesAreThereTogether) {
  const AttrMap promise = {{kFeedShapeAttr, PartialShape{2}}, {"T", DType::kInt32}};
  AttrMap first = promise, second = promise;
  first.set("index", 0);
  second.set("index", 1);
  Output x = g.add("_Arg", {}, first, {}), y = g.add("_Arg", {}, second, {});
  Output a = add(x, x, "a"), b = add(a, x, "b"), c = add(b, y, "c");
  g.fetch(c, 0);
  g.fetch(g.add("Identity", {b}), 1);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("c"), (Names{"a", "b", "c"}));
}

TEST_F(FuseElementwise, AnInvariantReadInOneBranchAloneJoinsIt) {
  Output x = g.feed(DType::kInt32, 0), pred = g.feed(DType::kBool, 1);
  Output branch = g.add("Switch", {x, pred}, {.name = "branch"});
  Output a = add(x, x, "a"), b = add(a, branch, "b");
  g.fetch(g.add("Merge", {b, Output{branch.node, 1}}, {.name = "merged"}), 0);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("b"), (Names{"a", "b"}));
}

TEST_F(FuseElementwise, NoNodeHasMoreThanATreeMayHave) {
  Output x = g.feed(DType::kInt32, 0), y = x;
  for (int i = 0; i < 3 * ElementwiseTree::kMaxStages; ++i) y = add(y, x, str_cat("n", i));
  for (int i = 0; i < 3 * ElementwiseTree::kMaxInputs; ++i) {
    y = add(y, g.feed(DType::kInt32, i + 1), str_cat("m", i));
  }
  g.fetch(y, 0);
  EXPECT_TRUE(fuse());
  for (const SubNode& node : g.graph.nodes()) {
    EXPECT_LE(node.inputs.size(), static_cast<size_t>(ElementwiseTree::kMaxInputs));
  }
  EXPECT_LE(count_op(g.graph, "_FusedToys") + count_op(g.graph, "Add"), 8);
}

// Though others read what depends on some variables of a loop only.
TEST_F(FuseElementwise, VariablesOfALoopAreThereTogether) {
  const Output one = g.constant(1);
  const auto enter = [&] { return g.add("Enter", {one}, {{"frame_name", "f"}}, {}); };
  const Output x = enter(), y = enter();
  const Output merge_x = g.add("Merge", {x, x}), merge_y = g.add("Merge", {y, y});
  const Output cond = g.add("LoopCond", {g.add("Less", {merge_x, merge_x}, {.name = "less"})});
  const Output branch_x = g.add("Switch", {merge_x, cond});
  const Output branch_y = g.add("Switch", {merge_y, cond});
  const Output in_x{branch_x.node, 1}, in_y{branch_y.node, 1};
  const Output a = add(in_x, in_x, "a"), b = add(a, in_y, "b");
  g.graph.node(merge_x.node).inputs[1] = g.add("NextIteration", {a});
  g.graph.node(merge_y.node).inputs[1] = g.add("NextIteration", {b});
  g.fetch(g.add("Exit", {branch_y}), 0);
  EXPECT_TRUE(fuse());
  EXPECT_EQ(members("b"), (Names{"a", "b"}));
}

}  // namespace
}  // namespace millrace
