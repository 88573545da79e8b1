// test-links: ops
#include "millrace/runtime/memory.h"

#include <gtest/gtest.h>

#include <map>

#include "millrace/runtime/executor_testing.h"

namespace millrace {
namespace {

class MemoryTest : public testing::Test {
 protected:
  // How many nodes there are of each op, once the copies have been added.
  std::map<std::string, int> ops_with_copies() {
    EXPECT_TRUE(g_.builder().status().ok()) << g_.builder().status().to_string();
    Subgraph graph = Subgraph::from_graph(g_.graph());
    Status status = add_copies(graph);
    EXPECT_TRUE(status.ok()) << status.to_string();
    expect_no_edge_crosses(graph);
    std::map<std::string, int> counts;
    for (const SubNode& node : graph.nodes()) ++counts[node.op->name];
    return counts;
  }

  // A second look at a graph with copies finds every tensor where its readers want it.
  static void expect_no_edge_crosses(const Subgraph& graph) {
    Result<TensorMemory> memory = find_memory(graph);
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    for (size_t id = 0; id < graph.nodes().size(); ++id) {
      const SubNode& node = graph.nodes()[id];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Output from = node.inputs[i];
        EXPECT_EQ(
            memory->host_inputs[id][i],
            memory->host_outputs[static_cast<size_t>(from.node)][static_cast<size_t>(from.index)])
            << node.name << ", input " << i;
      }
    }
  }

  TestGraph g_;
};

TEST_F(MemoryTest, FeedsAndFetchesAreOnTheHost) {
  Expr x = g_.feed(DType::kFloat, 0);
  g_.fetch(x * x, 0);
  g_.fetch(x + x, 1);
  auto ops = ops_with_copies();
  EXPECT_EQ(ops["_CopyFromHost"], 1);  // one for both readers
  EXPECT_EQ(ops["_CopyToHost"], 2);
}

TEST_F(MemoryTest, WhatOnlyTheHostReadsStaysThere) {
  Expr x = g_.feed(DType::kFloat, 0);
  Expr y = call("Reshape", {x, call("Identity", {call("Shape", {x})})});
  g_.fetch(call("Shape", {y}), 0);
  g_.fetch(call("Identity", {g_.feed(DType::kInt32, 1)}), 1);
  g_.fetch(call("AsString", {x}), 2);
  auto ops = ops_with_copies();
  EXPECT_EQ(ops["_CopyToHost"], 0);
}

TEST_F(MemoryTest, AConstantReadOnBothSidesIsMadeTwice) {
  Expr c = g_.constant(2);
  Expr x = g_.feed(DType::kInt32, 0);
  g_.fetch(call("ExpandDims", {x * c, c}), 0);
  auto ops = ops_with_copies();
  EXPECT_EQ(ops["Const"], 2);
  EXPECT_EQ(ops["_CopyFromHost"], 1);
  EXPECT_EQ(ops["_CopyToHost"], 1);
}

TEST_F(MemoryTest, ALoopVariableStaysOnOneSide) {
  // It enters from the host, and comes back from the device.
  Expr n = g_.feed(DType::kInt32, 0);
  TestGraph::Values out = g_.while_loop(
      "loop", {n}, {}, [&](TestGraph::Values v, TestGraph::Values) { return less(v[0], v[0]); },
      [](TestGraph::Values v, TestGraph::Values) { return TestGraph::Values{v[0] + v[0]}; });
  g_.fetch(out[0], 0);
  auto ops = ops_with_copies();
  EXPECT_EQ(ops["_CopyFromHost"], 1);
  EXPECT_EQ(ops["_CopyToHost"], 2);  // the predicate, and the result
}

TEST_F(MemoryTest, BothSidesOfASwitchLieTogether) {
  // One is read on the device, the other on the host.
  std::vector<Expr> sides = call_multi("Switch", {g_.constant(3), g_.feed(DType::kBool, 0)});
  g_.fetch(sides[0], 0);
  g_.fetch(sides[1] + sides[1], 1);
  auto ops = ops_with_copies();
  EXPECT_EQ(ops["_CopyFromHost"], 1);
  EXPECT_EQ(ops["_CopyToHost"], 1);
}

TEST_F(MemoryTest, WhatIsReadOnBothSidesIsCopiedTowardsTheDevice) {
  // That way nobody waits.
  Expr x = g_.feed(DType::kInt32, 0);
  Expr both = call("Identity", {call("Shape", {x})});
  g_.fetch(call("Reshape", {x, both}), 0);
  g_.fetch(both + both, 1);
  auto ops = ops_with_copies();
  EXPECT_EQ(ops["_CopyToHost"], 1);  // the fetched sum
  EXPECT_EQ(ops["_CopyFromHost"], 1);
}

}  // namespace
}  // namespace millrace
