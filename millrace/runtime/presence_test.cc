#include "millrace/runtime/presence.h"

#include <gtest/gtest.h>

#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

class PresenceTest : public testing::Test {
 protected:
  // A variable of the loop "f": what it is in an iteration, and after.
  struct Variable {
    Output merge, inside, exit;
  };
  Variable variable(Output start) {
    const Output enter = g.add("Enter", {start}, {{"frame_name", "f"}}, {});
    const Output merge = g.add("Merge", {enter, enter});
    if (cond.node < 0) cond = g.add("LoopCond", {g.add("Less", {merge, merge})});
    const Output branch = g.add("Switch", {merge, cond});
    return {merge, {branch.node, 1}, g.add("Exit", {branch})};
  }
  void close(const Variable& v, Output next) {
    g.graph.node(v.merge.node).inputs[1] = g.add("NextIteration", {next});
  }
  Output constant_in(Output x) {
    return g.add("Enter", {x}, {{"frame_name", "f"}, {"is_constant", true}}, {});
  }
  Output pass(Output x) { return g.add("Identity", {x}); }
  bool same(Output a, Output b) {
    const Presence presence(g.graph, g.graph.topological_order().value());
    return presence.of(a.node) == presence.of(b.node);
  }
  bool covers(Output a, Output b) {
    const Presence presence(g.graph, g.graph.topological_order().value());
    return presence.covers(presence.of(a.node), presence.of(b.node));
  }

  ToyGraph g;
  Output cond{-1, 0};
};

TEST_F(PresenceTest, BranchesOfOnePredicate) {
  const Output x = g.constant(1), y = g.constant(2), p = g.feed(DType::kBool, 0);
  const Output a = g.add("Switch", {x, p}), b = g.add("Switch", {y, p});
  const Output c = g.add("Switch", {y, g.feed(DType::kBool, 1)});
  EXPECT_TRUE(same(pass({a.node, 1}), pass({b.node, 1})));
  EXPECT_FALSE(same(pass({a.node, 1}), pass(b)));
  EXPECT_FALSE(same(pass({a.node, 1}), pass({c.node, 1})));
}

TEST_F(PresenceTest, BranchesThatComeTogether) {
  const Output x = g.constant(1), p = g.feed(DType::kBool, 0), q = g.feed(DType::kBool, 1);
  const Output a = g.add("Switch", {x, p}), b = g.add("Switch", {x, q});
  const Output no = pass(a), yes = pass({a.node, 1}), other = pass({b.node, 1});
  const Output twice = g.add("Add", {yes, other});
  const Output joined = g.add("Merge", {no, yes});
  EXPECT_TRUE(same(joined, pass(p)));
  EXPECT_FALSE(same(g.add("Merge", {no, other}), pass(p)));
  EXPECT_FALSE(same(g.add("Merge", {no, twice}), pass(p)));
  EXPECT_FALSE(same(g.add("Merge", {no, no}), pass(p)));
}

TEST_F(PresenceTest, VariablesOfALoop) {
  const Output one = g.constant(1);
  const Variable a = variable(one), b = variable(one);
  const Output from_a = pass(a.inside), from_b = g.add("Add", {b.inside, constant_in(one)});
  close(a, from_a);
  close(b, from_b);
  EXPECT_TRUE(same(from_a, from_b));
  EXPECT_TRUE(same(pass(a.merge), pass(b.merge)));
  EXPECT_FALSE(same(from_a, pass(a.merge)));
  EXPECT_TRUE(covers(pass(a.merge), from_a));
  // After it.
  EXPECT_TRUE(same(a.exit, b.exit));
  EXPECT_FALSE(same(a.exit, one));
  EXPECT_FALSE(same(a.exit, from_a));
}

TEST_F(PresenceTest, ABranchInALoop) {
  const Output one = g.constant(1);
  const Variable a = variable(one), b = variable(one);
  const Output p = g.add("Less", {a.inside, b.inside});
  const Output branch = g.add("Switch", {b.inside, p});
  const Output joined = g.add("Merge", {pass(branch), pass({branch.node, 1})});
  close(a, a.inside);
  close(b, joined);
  EXPECT_TRUE(same(pass(a.inside), joined));
}

// One that may come to its end, or late, when others do not.
TEST_F(PresenceTest, VariablesThatEnterApart) {
  const Variable a = variable(g.constant(1)), b = variable(g.feed(DType::kInt32, 0));
  close(a, pass(a.inside));
  close(b, pass(b.inside));
  EXPECT_FALSE(same(pass(a.inside), pass(b.inside)));
  EXPECT_FALSE(same(a.exit, b.exit));
}

TEST_F(PresenceTest, VariablesThatWaitForMore) {
  const Output one = g.constant(1);
  const Variable a = variable(one), b = variable(one);
  close(a, pass(a.inside));
  close(b, g.add("Add", {b.inside, constant_in(g.feed(DType::kInt32, 0))}));
  EXPECT_FALSE(same(pass(a.inside), pass(b.inside)));
}

TEST_F(PresenceTest, VariablesThatMayEnd) {
  const Output one = g.constant(1);
  const Variable a = variable(one), b = variable(one);
  const Output p = g.add("Less", {a.inside, b.inside});
  close(a, pass(a.inside));
  close(b, pass({g.add("Switch", {b.inside, p}).node, 1}));
  EXPECT_FALSE(same(pass(a.inside), pass(b.inside)));
}

}  // namespace
}  // namespace millrace
