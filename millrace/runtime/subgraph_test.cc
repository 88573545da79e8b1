#include "millrace/runtime/subgraph.h"

#include <gtest/gtest.h>

#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

// i = start; while (i < i) i = i.
struct LoopGraph : ToyGraph {
  LoopGraph() {
    enter = add("Enter", {constant(1, {.name = "start"})},
                {{"frame_name", "f"}, {"parallel_iterations", 4}}, {.name = "enter"});
    merge = add("Merge", {enter, enter}, {.name = "merge"});
    cond = add("LoopCond", {add("Less", {merge, merge})}, {.name = "cond"});
    branch = add("Switch", {merge, cond}, {.name = "switch"});
    next = add("NextIteration", {Output{branch.node, 1}}, {.name = "next"});
    graph.node(merge.node).inputs[1] = next;
    exit = add("Exit", {branch}, {.name = "exit"});
  }
  Output enter, merge, cond, branch, next, exit;
};

TEST(Subgraph, AddChecksAttributesAndInputs) {
  ToyGraph g;
  EXPECT_EQ(g.graph.add("x", "Nonsense", {}, {}, {}, 0).status().code(), Code::kNotFound);
  EXPECT_EQ(g.graph.add("x", "Const", {}, {}, {}, 0).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(g.graph.add("x", "Add", {g.constant(1)}, {}, {{"T", DType::kInt32}}, 0).ok());
}

TEST(Subgraph, EachDeviceNameIsKeptOnce) {
  ToyGraph g;
  g.constant(1, {.name = "anywhere"});
  g.constant(1, {.device = "/cpu:0", .name = "old"});
  g.constant(1, {.device = "/device:CPU:0", .name = "new"});
  g.constant(1, {.device = "/cpu:0", .name = "again"});
  g.constant(1, {.device = "cpu zero", .name = "wrong"});
  EXPECT_EQ(g.node("anywhere").device, 0);
  EXPECT_EQ(g.node("old").device, g.node("again").device);
  // What was written stays: that the two are one device is for their parsed names to say.
  EXPECT_NE(g.node("old").device, g.node("new").device);
  const DeviceTable& devices = g.graph.devices();
  EXPECT_EQ(devices.size(), 4);
  EXPECT_TRUE(*devices.parsed(g.node("old").device) == *devices.parsed(g.node("new").device));
  EXPECT_EQ(devices.parsed(g.node("wrong").device).status().code(), Code::kInvalidArgument);

  Subgraph derived = g.graph.derived();
  derived.devices().intern("/cpu:7");
  derived.add(g.node("again"));
  EXPECT_EQ(derived.device_name(derived.node(0)), "/cpu:0");
  EXPECT_EQ(devices.size(), 4);
}

TEST(Subgraph, SetAttrLeavesCopiesAlone) {
  ToyGraph g;
  g.constant(1, {.name = "x"});
  Subgraph copy = g.graph;
  copy.node(0).set_attr("_mark", true);
  EXPECT_EQ(g.graph.node(0).attrs->find("_mark"), nullptr);
  EXPECT_TRUE(copy.node(0).attr<bool>("_mark").value());
}

TEST(Subgraph, UsesListDataAndControlConsumers) {
  ToyGraph g;
  Output x = g.constant(1);
  Output y = g.add("Add", {x, x}, {.after = {x.node}});
  std::vector<Subgraph::Use> uses = g.graph.uses()[0];
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_EQ(uses[1].node, y.node);
  EXPECT_EQ(uses[1].input, 1);
  EXPECT_EQ(uses[1].output, 0);
  EXPECT_EQ(uses[2].input, -1);
}

TEST(SemanticsOfCycles, OnlyThroughNextIteration) {
  LoopGraph loop;
  EXPECT_EQ(loop.graph.topological_order().value().size(), static_cast<size_t>(loop.graph.size()));

  ToyGraph g;
  Output x = g.constant(1, {.name = "x"});
  Output y = g.add("Add", {x, x}, {.name = "y"});
  Output z = g.add("Add", {y, x}, {.name = "z"});
  g.graph.node(y.node).inputs[1] = z;
  Status status = g.graph.topological_order().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "2 nodes in a cycle: y, z");
}

TEST(Subgraph, CompactRenumbers) {
  ToyGraph g;
  g.constant(1, {.name = "gone"});
  Output y = g.constant(2, {.name = "y"});
  g.add("Identity", {y}, {.after = {y.node}, .name = "z"});
  g.graph.node(0).erased = true;
  g.graph.compact();
  ASSERT_EQ(g.graph.size(), 2);
  EXPECT_EQ(g.graph.node(1).inputs[0].node, 0);
  EXPECT_EQ(g.graph.node(1).control_inputs[0], 0);
}

TEST(Subgraph, GraphDefRoundTrip) {
  LoopGraph g;
  g.add("KeepAndFlip", {g.exit},
        {.device = "/cpu:1", .after = {g.enter.node - 1}, .name = "_internal/_1"});
  Subgraph back =
      Subgraph::from_graph_def_bytes(g.graph.to_graph_def_bytes().value(), ToyOps::get().ops)
          .value();
  ASSERT_EQ(back.size(), g.graph.size());
  for (const SubNode& node : g.graph.nodes()) {
    const SubNode& other = node_named(back, node.name);
    EXPECT_EQ(other.op, node.op);
    EXPECT_EQ(back.device_name(other), g.graph.device_name(node));
    EXPECT_TRUE(*other.attrs == *node.attrs) << node.name;
    ASSERT_EQ(other.inputs.size(), node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      EXPECT_EQ(back.node(other.inputs[i].node).name, g.graph.node(node.inputs[i].node).name);
      EXPECT_EQ(other.inputs[i].index, node.inputs[i].index);
    }
    EXPECT_EQ(other.control_inputs.size(), node.control_inputs.size());
  }
}

TEST(SemanticsOfFrames, EachNodeHasOne) {
  LoopGraph g;
  FrameInfo info = analyze_frames(g.graph).value();
  ASSERT_EQ(info.frames.size(), 2u);
  EXPECT_EQ(info.frames[1].name, "f");
  EXPECT_EQ(info.frames[1].parallel_iterations, 4);
  EXPECT_EQ(info.frames[1].loop_cond, g.cond.node);
  auto frames = [&](Output o) {
    size_t n = static_cast<size_t>(o.node);
    return std::pair(info.node_frame[n], info.output_frame[n]);
  };
  EXPECT_EQ(frames(g.enter), std::pair(0, 1));
  EXPECT_EQ(frames(g.merge), std::pair(1, 1));
  EXPECT_EQ(frames(g.next), std::pair(1, 1));
  EXPECT_EQ(frames(g.exit), std::pair(1, 0));
}

TEST(SemanticsOfFrames, Mistakes) {
  LoopGraph g;
  Output outside = g.constant(1);
  g.add("Add", {g.merge, outside}, {.name = "both"});
  Status two = analyze_frames(g.graph).status();
  EXPECT_EQ(two.code(), Code::kInvalidArgument);
  EXPECT_NE(two.message().find("\"both\""), std::string_view::npos) << two.to_string();

  ToyGraph exits;
  exits.add("Exit", {exits.constant(1)});
  EXPECT_EQ(analyze_frames(exits.graph).status().code(), Code::kInvalidArgument);
  ToyGraph unnamed;
  unnamed.add("Enter", {unnamed.constant(1)}, {{"frame_name", ""}}, {});
  EXPECT_EQ(analyze_frames(unnamed.graph).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
