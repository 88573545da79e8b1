#include <gtest/gtest.h>

#include <optional>

#include "millrace/runtime/optimize.h"
#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

class LoopInvariants : public testing::Test {
 protected:
  ToyPlace on(std::string name = {}, std::vector<NodeId> after = {}) {
    return {.device = devices_[0]->name(), .after = std::move(after), .name = std::move(name)};
  }
  Output enter(Output x, bool constant = true, const char* frame = "f") {
    return g.add("Enter", {x}, {{"frame_name", frame}, {"is_constant", constant}}, on());
  }
  Output feed(int position, std::optional<PartialShape> shape = PartialShape{2}) {
    AttrMap attrs = {{"T", DType::kFloat}, {"index", position}};
    if (shape) attrs.set(kFeedShapeAttr, *shape);
    return g.add("_Arg", {}, std::move(attrs), on());
  }
  // for (i = 0; i < n; ++i) sum = sum + step, fetched at the end, with n fed first.
  Output begin(int feeds) {
    const Output i = enter(g.constant(0, on()), false),
                 n = enter(g.feed(DType::kInt32, feeds, on()));
    const Output merge = g.add("Merge", {i, i}, on());
    cond_ = g.add("LoopCond", {g.add("Less", {merge, n}, on())}, on());
    const Output branch = g.add("Switch", {merge, cond_}, on());
    const Output one = enter(g.constant(1, on()));
    g.graph.node(merge.node).inputs[1] =
        g.add("NextIteration", {g.add("Add", {{branch.node, 1}, one}, on())}, on());
    const Output start = enter(g.constant(Tensor::vector<float>({0, 0}), on()), false);
    merge_ = g.add("Merge", {start, start}, on());
    branch_ = g.add("Switch", {merge_, cond_}, on());
    return {branch_.node, 1};
  }
  void end(Output next) {
    g.graph.node(merge_.node).inputs[1] = g.add("NextIteration", {next}, on());
    g.fetch(g.add("Exit", {branch_}, on()), 0, on());
  }
  bool rewrite() { return move_invariants_out(g.graph, {}).value(); }
  // Whether a node runs inside of a loop.
  bool is_inside(std::string_view name) {
    const FrameInfo frames = analyze_frames(g.graph).value();
    const SubNode& node = g.node(name);
    return frames.node_frame[static_cast<size_t>(&node - g.graph.nodes().data())] != 0;
  }
  Tensor run(std::vector<Tensor> feeds) {
    const auto out = run_toy(g.graph, devices_, std::move(feeds), 1);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? (*out)[0] : Tensor();
  }

  std::vector<Ref<Device>> devices_ = toy_devices(1);
  ToyGraph g;
  Output cond_, merge_, branch_;
};

TEST_F(LoopInvariants, AreComputedBefore) {
  const Output x = enter(feed(0)), sum = begin(1);
  const Output square = g.add("Mul", {x, x}, on("square"));
  const Output twice = g.add("Add", {square, square}, on("twice"));
  const Output waits = g.add("Identity", {sum}, on("waits", {twice.node}));
  end(g.add("Add", {waits, twice}, on("next")));
  const Tensor fed = Tensor::vector<float>({3, 0.5F});
  for (int n : {0, 3}) {
    const Tensor expected =
        Tensor::vector<float>({18.0F * static_cast<float>(n), 0.5F * static_cast<float>(n)});
    EXPECT_TRUE(bit_equal(run({fed, Tensor::scalar(n)}), expected));
  }
  ASSERT_TRUE(rewrite());
  EXPECT_FALSE(rewrite());
  EXPECT_FALSE(is_inside("square"));
  EXPECT_FALSE(is_inside("twice"));
  EXPECT_TRUE(is_inside("next"));
  // It enters as a constant, for whoever waits for it too.
  const SubNode& inside = g.graph.node(g.node("next").inputs[1].node);
  EXPECT_TRUE(inside.attr<bool>("is_constant").value());
  EXPECT_EQ(g.graph.node(inside.inputs[0].node).name, "twice");
  EXPECT_EQ(&g.graph.node(g.node("waits").control_inputs[0]), &inside);
  for (int n : {0, 3}) {
    const Tensor expected =
        Tensor::vector<float>({18.0F * static_cast<float>(n), 0.5F * static_cast<float>(n)});
    EXPECT_TRUE(bit_equal(run({fed, Tensor::scalar(n)}), expected));
  }
}

TEST_F(LoopInvariants, WhatChangesStays) {
  const Output x = enter(feed(0)), sum = begin(1);
  end(g.add("Mul", {x, sum}, on()));
  EXPECT_FALSE(rewrite());
}

// A loop of no iterations does not fail.
TEST_F(LoopInvariants, WhatMayFailStays) {
  const Output x = enter(feed(0)), y = enter(feed(2, PartialShape{3}));
  const Output z = enter(feed(3, std::nullopt)), i = enter(g.constant(1, on()));
  const Output sum = begin(1);
  g.fetch(g.add("Exit", {g.add("Mul", {x, y}, on())}, on()), 1, on());
  g.fetch(g.add("Exit", {g.add("Mul", {x, z}, on())}, on()), 2, on());
  g.fetch(g.add("Exit", {g.add("Fail", {x}, on())}, on()), 3, on());
  g.fetch(g.add("Exit", {g.add("Sub", {i, i}, on())}, on()), 4, on());
  end(sum);
  EXPECT_FALSE(rewrite());
}

TEST_F(LoopInvariants, WhatWaitsStays) {
  const Output x = enter(feed(0)), sum = begin(1);
  end(g.add("Add", {sum, g.add("Mul", {x, x}, on("square", {sum.node}))}, on()));
  EXPECT_FALSE(rewrite());
}

TEST_F(LoopInvariants, OtherDevicesStay) {
  const Output x = enter(feed(0)), sum = begin(1);
  end(g.add("Add", {sum, g.add("Mul", {x, x}, {.device = "/device:GPU:0"})}, on()));
  EXPECT_FALSE(rewrite());
}

TEST_F(LoopInvariants, LeaveAllLoopsThatTheyAreIn) {
  const Output x = feed(0);
  const Output inner = enter(enter(x), true, "inner");
  const Output square = g.add("Mul", {inner, inner}, on("square"));
  g.fetch(g.add("Exit", {g.add("Exit", {square}, on())}, on()), 0, on());
  ASSERT_TRUE(rewrite());
  EXPECT_TRUE(is_inside("square"));
  ASSERT_TRUE(rewrite());
  EXPECT_FALSE(is_inside("square"));
  EXPECT_FALSE(rewrite());
}

}  // namespace
}  // namespace millrace
