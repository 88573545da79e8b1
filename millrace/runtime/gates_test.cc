#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/runtime/optimize.h"
#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

class Gates : public testing::Test {
 protected:
  // Hands `values` on when all of them are there.
  std::vector<Output> together(const std::vector<Output>& values, std::vector<NodeId> also = {}) {
    std::vector<NodeId> all = std::move(also);
    for (Output o : values) all.push_back(o.node);
    const Output group = g.add("NoOp", {}, {.after = all});
    std::vector<Output> out;
    for (Output o : values) out.push_back(g.add("Identity", {o}, {.after = {group.node}}));
    return out;
  }
  bool open() { return open_gates(g.graph, {}).value(); }
  std::vector<std::string> waits(std::string_view name) const {
    std::vector<std::string> out;
    for (NodeId c : g.node(name).control_inputs) out.push_back(g.graph.node(c).name);
    std::ranges::sort(out);
    return out;
  }
  std::string input(std::string_view name, size_t i = 0) const {
    return g.graph.node(g.node(name).inputs[i].node).name;
  }
  using Names = std::vector<std::string>;

  ToyGraph g;
};

TEST_F(Gates, WhatHasEffectsStillFollowsTheReadersOfVariables) {
  Output x = g.feed(DType::kInt32, 0), v = g.add("Var", {}, {{"T", DType::kInt32}}, {});
  Output read = g.add("Identity", {v});
  Output a = g.add("Mul", {x, x}, {.name = "a"});
  Output b = g.add("Sub", {read, x}, {.name = "b"});
  Output c = g.add("Add", {b, x}, {.name = "c"}), d = g.add("Add", {x, x}, {.name = "d"});
  const std::vector<Output> gated = together({a, c, d});
  Output next = g.add("Add", {gated[0], x}, {.name = "next"});
  Output last = g.add("Add", {next, x}, {.name = "last"});
  g.add("Assign", {v, last}, {.name = "assign"});
  g.fetch(last, 0, {.name = "fetch"});
  EXPECT_TRUE(open());
  EXPECT_EQ(input("next"), "a");
  EXPECT_EQ(waits("next"), Names());
  EXPECT_EQ(waits("last"), Names());
  // The update would change what b reads; c and d compute with values that stay.
  EXPECT_EQ(waits("assign"), Names{"b"});
  EXPECT_EQ(waits("fetch"), Names{"b"});
  EXPECT_FALSE(open());
}

TEST_F(Gates, ChainsOfGroupsLeaveNoMoreThanIsNeeded) {
  Output x = g.feed(DType::kInt32, 0);
  // As the gradients of a chain of products: `back` goes on, `side` is the gradient of a weight.
  for (int i = 0; i < 4; ++i) {
    Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {.name = str_cat("v", i)});
    Output back = g.add("Mul", {x, g.add("Identity", {v})}, {.name = str_cat("back", i)});
    Output side = g.add("Sub", {x, x}, {.name = str_cat("side", i)});
    const std::vector<Output> gated = together({back, side});
    x = gated[0];
    Output scaled = g.add("Add", {gated[1], gated[1]}, {.name = str_cat("scaled", i)});
    g.add("Assign", {v, scaled}, {.name = str_cat("assign", i)});
  }
  EXPECT_TRUE(open());
  for (int i = 0; i < 4; ++i) {
    // What came before that on the way to x is waited for by that.
    EXPECT_EQ(waits(str_cat("assign", i)), Names{str_cat("back", i)}) << i;
  }
}

TEST_F(Gates, EffectsOfTheGroupStay) {
  Output x = g.feed(DType::kInt32, 0);
  Output tick = g.add("Tick", {}, {.name = "tick"});
  Output fails = g.add("Fail", {x}, {.name = "fails"});  // whose value is not asked for
  const std::vector<Output> gated = together({g.add("Add", {x, x})}, {tick.node, fails.node});
  g.fetch(g.add("Mul", {gated[0], x}), 0, {.name = "fetch"});
  EXPECT_TRUE(open());
  EXPECT_EQ(waits("fetch"), (Names{"fails", "tick"}));
}

TEST_F(Gates, WhatIsNoGateStays) {
  Output x = g.feed(DType::kInt32, 0), a = g.add("Add", {x, x}), b = g.add("Mul", {x, x});
  // It waits for something else than its own value: so is the order of computing again written.
  Output later = g.add("Identity", {a}, {.after = {b.node}});
  g.fetch(g.add("Mul", {later, x}), 0);
  // Asked for.
  Output target = g.add("Identity", {a}, {{"_target", true}, {"T", DType::kInt32}},
                        {.after = {a.node, b.node}});
  g.fetch(g.add("Mul", {target, x}), 1);
  // Nobody gains.
  g.fetch(together({a, b})[0], 2);
  EXPECT_FALSE(open());
}

TEST_F(Gates, NothingIsKilledByWhatIsDead) {
  Output x = g.feed(DType::kInt32, 0), pred = g.feed(DType::kBool, 1);
  Output branch = g.add("Switch", {x, pred});
  Output taken = g.add("Add", {{branch.node, 1}, {branch.node, 1}}, {.name = "taken"});
  Output other = g.add("Add", {branch, branch}, {.name = "other"});
  // The gate's own value is there when the other is not.
  Output always = g.add("Add", {x, x});
  Output gated = together({always, taken})[0];
  g.fetch(g.add("Mul", {gated, x}), 0);
  // Past the Merge the branch may be dead.
  Output inside = g.add("Mul", {together({taken, g.add("Mul", {taken, taken})})[0], taken});
  g.fetch(g.add("Merge", {inside, other}), 1);
  EXPECT_FALSE(open());
}

// Of the iterations of a loop, and between devices, a gate is left at the end.
TEST_F(Gates, LoopsAndOtherDevices) {
  Output x = g.feed(DType::kInt32, 0, {.device = "/cpu:0"});
  Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {.device = "/cpu:0"});
  Output read = g.add("Identity", {v}, {.device = "/cpu:0"});
  Output a = g.add("Add", {x, x}, {.device = "/cpu:0", .name = "a"});
  Output b = g.add("Mul", {x, read}, {.device = "/cpu:0", .name = "b"});
  const Output group = g.add("NoOp", {}, {.device = "/cpu:0", .after = {a.node, b.node}});
  Output gated = g.add("Identity", {a}, {.device = "/cpu:0", .after = {group.node}});
  Output scaled = g.add("Mul", {gated, gated}, {.device = "/cpu:0", .name = "scaled"});
  g.add("Enter", {scaled}, {{"frame_name", "f"}}, {.device = "/cpu:0", .name = "enter"});
  g.fetch(scaled, 0, {.device = "/cpu:1", .name = "fetch"});
  EXPECT_TRUE(open());
  for (const char* end : {"enter", "fetch"}) {
    EXPECT_EQ(waits(end), Names()) << end;
    const std::string gate = input(end);
    EXPECT_EQ(g.node(gate).op->name, "Identity") << end;
    EXPECT_EQ(g.device(gate), "/cpu:0") << end;
    EXPECT_EQ(input(gate), "scaled") << end;
    EXPECT_EQ(waits(gate), Names{"b"}) << end;
  }
  EXPECT_FALSE(open());
}

// What depends on different variables of a loop is there in the same iterations. Who reads the
// memory of a variable does so before the iteration ends.
TEST_F(Gates, InsideOfALoop) {
  const Output one = g.constant(1), v = g.add("Var", {}, {{"T", DType::kInt32}}, {});
  const Output read =
      g.add("Enter", {g.add("Identity", {v})}, {{"frame_name", "f"}, {"is_constant", true}}, {});
  struct Variable {
    Output merge, inside;
  };
  Output cond{-1, 0};
  const auto variable = [&]() -> Variable {
    const Output enter = g.add("Enter", {one}, {{"frame_name", "f"}}, {});
    const Output merge = g.add("Merge", {enter, enter});
    if (cond.node < 0) cond = g.add("LoopCond", {g.add("Less", {merge, merge})});
    const Output branch = g.add("Switch", {merge, cond});
    g.fetch(g.add("Exit", {branch}), branch.node);
    return {merge, {branch.node, 1}};
  };
  const Variable a = variable(), b = variable();
  const std::vector<Output> gated = together({g.add("Add", {a.inside, a.inside}, {.name = "a"}),
                                              g.add("Mul", {b.inside, b.inside}, {.name = "b"}),
                                              g.add("Sub", {b.inside, read}, {.name = "c"})});
  const Output next_a = g.add("Add", {gated[0], gated[0]}, {.name = "next_a"});
  const Output next_b = g.add("Add", {gated[1], gated[0]}, {.name = "next_b"});
  g.graph.node(a.merge.node).inputs[1] = g.add("NextIteration", {next_a}, {.name = "end_a"});
  g.graph.node(b.merge.node).inputs[1] = g.add("NextIteration", {next_b});
  EXPECT_TRUE(open());
  EXPECT_EQ(input("next_a"), "a");
  EXPECT_EQ(input("next_b", 0), "b");
  EXPECT_EQ(waits("next_b"), Names());
  EXPECT_EQ(input(input("end_a")), "next_a");
  EXPECT_EQ(waits(input("end_a")), Names{"c"});
}

// An update of a variable on another device: the gate is before what is no reference.
TEST_F(Gates, UpdatesOnOtherDevices) {
  Output x = g.feed(DType::kInt32, 0, {.device = "/cpu:0"});
  Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {.device = "/cpu:1"});
  Output w = g.add("Var", {}, {{"T", DType::kInt32}}, {.device = "/cpu:0"});
  Output read = g.add("Identity", {w}, {.device = "/cpu:0"});
  Output a = g.add("Add", {x, x}, {.device = "/cpu:0", .name = "a"});
  Output b = g.add("Mul", {x, read}, {.device = "/cpu:0", .name = "b"});
  const Output group = g.add("NoOp", {}, {.device = "/cpu:0", .after = {a.node, b.node}});
  Output gated = g.add("Identity", {a}, {.device = "/cpu:0", .after = {group.node}});
  Output scaled = g.add("Mul", {gated, gated}, {.device = "/cpu:0", .name = "scaled"});
  g.add("Assign", {v, scaled}, {.device = "/cpu:1", .name = "assign"});
  EXPECT_TRUE(open());
  EXPECT_EQ(waits("assign"), Names());
  EXPECT_EQ(g.graph.node(g.node("assign").inputs[0].node).op->name, "Var");
  const std::string gate = input("assign", 1);
  EXPECT_EQ(g.node(gate).op->name, "Identity");
  EXPECT_EQ(g.device(gate), "/cpu:0");
  EXPECT_EQ(input(gate), "scaled");
  EXPECT_EQ(waits(gate), Names{"b"});
}

}  // namespace
}  // namespace millrace
