#include "millrace/runtime/subgraph_facts.h"

#include <gtest/gtest.h>

#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

class Facts : public testing::Test {
 protected:
  Output fed(PartialShape shape, DType dtype = DType::kInt32) {
    return g.add("_Arg", {}, {{"T", dtype}, {"index", 0}, {kFeedShapeAttr, shape}}, {});
  }
  Output list(std::initializer_list<int32_t> values) {
    return g.constant(Tensor::vector<int32_t>(values));
  }
  std::string shape_of(Output o) { return g.graph.facts().value()->of(o).shape.to_string(); }
  int64_t work() { return g.graph.facts().value()->work(); }
  ToyGraph g;
};

TEST_F(Facts, ComeFromConstantsRulesAndPromises) {
  Output x = fed({-1, 3});
  Output y = g.add("Add", {x, list({1, 2, 3})});
  EXPECT_EQ(shape_of(y), "[?,3]");
  Output z = g.add("AsShape", {y, list({6})});
  EXPECT_EQ(shape_of(z), "[6]");
  Output sizes = list({4, 5});
  EXPECT_EQ(g.graph.facts().value()->of(sizes).value->elements[1], 5);
}

TEST_F(Facts, NothingIsCertainOfFeedsStateAndReferences) {
  EXPECT_EQ(shape_of(g.feed(DType::kInt32, 0)), "?");
  EXPECT_EQ(shape_of(g.add("Tick", {})), "?");
  Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {});
  // Assign hands the variable on, which may have another shape when it is read.
  Output set = g.add("Assign", {v, list({1, 2})});
  EXPECT_EQ(shape_of(set), "?");
  EXPECT_EQ(shape_of(g.add("Add", {set, g.constant(1)})), "?");
}

TEST_F(Facts, WhatARuleRefusesIsUnknown) {
  Output sum = g.add("Add", {fed({2}), fed({3})});
  EXPECT_EQ(shape_of(sum), "?");
}

TEST_F(Facts, OnlyWhatChangedIsWorkedOutAgain) {
  Output x = fed({2, 3});
  Output a = g.add("Add", {x, g.constant(1)});
  Output b = g.add("AsShape", {a, list({6})});
  Output c = g.add("Add", {b, g.constant(1)});
  EXPECT_EQ(shape_of(c), "[6]");
  const int64_t before = work();
  EXPECT_EQ(before, g.graph.size());
  // The same shape from elsewhere: who reads it has nothing new to learn.
  g.graph.node(a.node).inputs[1] = x;
  EXPECT_EQ(shape_of(c), "[6]");
  EXPECT_EQ(work(), before + 1);
  // A new one: its readers follow.
  Output two = list({2, 3});
  g.graph.node(b.node).inputs[1] = two;
  EXPECT_EQ(shape_of(c), "[2,3]");
  EXPECT_EQ(work(), before + 1 + 3);
  g.graph.node(x.node).set_attr(kFeedShapeAttr, PartialShape{3, 3});
  EXPECT_EQ(shape_of(a), "[3,3]");
  EXPECT_EQ(work(), before + 1 + 3 + 3);
}

TEST_F(Facts, FollowTheNodesWhenTheyAreRenumbered) {
  g.constant(1, {.name = "gone"});
  Output y = g.add("Add", {fed({4}), g.constant(1)}, {.name = "y"});
  EXPECT_EQ(shape_of(y), "[4]");
  const int64_t before = work();
  g.graph.node(0).erased = true;
  g.graph.compact();
  EXPECT_EQ(shape_of({y.node - 1, 0}), "[4]");
  EXPECT_EQ(work(), before);
  // A copy works them out for itself.
  Subgraph copy = g.graph;
  EXPECT_EQ(copy.facts().value()->of({y.node - 1, 0}).shape, PartialShape{4});
  EXPECT_EQ(work(), before);
}

TEST_F(Facts, AreWorkedOutAgainForAReaderWhoseInputHasGone) {
  Output x = fed({4});
  Output gone = g.constant(1, {.name = "gone"});
  Output y = g.add("Add", {x, gone});
  EXPECT_EQ(shape_of(y), "[4]");
  g.graph.node(y.node).inputs[1] = x;
  g.graph.node(gone.node).erased = true;
  g.graph.compact();
  g.constant(2);
  g.graph.compact();  // nobody asked in between
  EXPECT_EQ(shape_of({y.node - 1, 0}), "[4]");
}

// v = enter; while (...) v = body(v).
class LoopFacts : public Facts {
 protected:
  Output enter(Output x, const std::string& frame) {
    return g.add("Enter", {x}, {{"frame_name", frame}, {"is_constant", false}}, {});
  }
  Output constant_in(Output x, const std::string& frame) {
    return g.add("Enter", {x}, {{"frame_name", frame}, {"is_constant", true}}, {});
  }
  struct Loop {
    Output merge, inside, exit;
  };
  Loop begin(Output x, const std::string& frame) {
    Output entered = enter(x, frame);
    Output merge = g.add("Merge", {entered, entered});
    Output more = g.add("LoopCond", {constant_in(g.feed(DType::kBool, 1), frame)});
    Output branch = g.add("Switch", {merge, more});
    return {merge, {branch.node, 1}, g.add("Exit", {branch})};
  }
  void close(const Loop& loop, Output back) {
    g.graph.node(loop.merge.node).inputs[1] = g.add("NextIteration", {back});
  }
};

TEST_F(LoopFacts, WhatEveryIterationKeepsIsCertain) {
  Loop loop = begin(fed({2, 3}), "f");
  close(loop, g.add("Add", {loop.inside, constant_in(g.constant(1), "f")}));
  EXPECT_EQ(shape_of(loop.exit), "[2,3]");
}

TEST_F(LoopFacts, WhatAnIterationChangesIsNot) {
  Loop loop = begin(fed({2, 3}), "f");
  close(loop, g.add("AsShape", {loop.inside, list({2, 4})}));
  EXPECT_EQ(shape_of(loop.merge), "[2,?]");
  Loop ranks = begin(fed({2, 3}), "g");
  close(ranks, g.add("AsShape", {ranks.inside, list({6})}));
  EXPECT_EQ(shape_of(ranks.exit), "?");
}

// Each loop variable takes the shape of the one before: it takes as many rounds as there are
// variables to see what becomes of the last, and that is more than is tried.
TEST_F(LoopFacts, LongChainsOfVariablesAreGivenUp) {
  std::vector<Loop> loops;
  for (int i = 0; i < 20; ++i) loops.push_back(begin(fed({2, 3}), "f"));
  close(loops[0], g.add("AsShape", {loops[0].inside, list({4, 3})}));
  for (size_t i = 1; i < loops.size(); ++i) close(loops[i], loops[i - 1].inside);
  EXPECT_EQ(shape_of(loops.back().exit), "?");
  EXPECT_LT(work(), 7 * g.graph.size());
}

TEST_F(LoopFacts, LoopsInLoops) {
  Loop outer = begin(fed({2, 3}), "outer");
  Loop inner = begin(outer.inside, "inner");
  close(inner, g.add("Add", {inner.inside, inner.inside}));
  close(outer, inner.exit);
  EXPECT_EQ(shape_of(outer.exit), "[2,3]");
}

}  // namespace
}  // namespace millrace
