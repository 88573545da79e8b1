#include "millrace/distributed/copy_sources.h"

#include <gtest/gtest.h>

#include "millrace/distributed/distributed_testing.h"

namespace millrace {
namespace {

class CopySources : public testing::Test {
 protected:
  CopySources() {
    std::vector<Device::Info> infos;
    for (const std::string_view task : {kTask0, kTask1}) {
      Device::Info info;
      info.name = DeviceName::parse(str_cat(task, "/device:CPU:0")).value();
      infos.push_back(info);
    }
    devices_ = DeviceSet(std::move(infos), 0);
    on(kTask0);
  }
  void on(std::string_view task) {
    graph_.builder().context().device = str_cat(task, "/device:CPU:0");
  }
  Expr constant(int64_t elements) {
    const Shape shape = {elements};
    return graph_.builder().constant(Tensor::zeros(DType::kFloat, shape).value());
  }
  // Of the inputs of the node that fetch 0 is: whether they are on its task.
  std::vector<bool> inputs_are_here(Expr fetched) {
    graph_.fetch(fetched, 0);
    EXPECT_TRUE(graph_.builder().status().ok()) << graph_.builder().status().to_string();
    subgraph_ = Subgraph::from_graph(graph_.graph());
    copy_sources(subgraph_, devices_);
    std::vector<bool> out;
    for (const SubNode& node : subgraph_.nodes()) {
      if (node.op->name != "Add") continue;
      for (const Output input : node.inputs) {
        EXPECT_FALSE(subgraph_.node(input.node).erased);
        out.push_back(subgraph_.device_name(subgraph_.node(input.node)) ==
                      subgraph_.device_name(node));
      }
    }
    return out;
  }
  int live(std::string_view op) {
    int count = 0;
    for (const SubNode& node : subgraph_.nodes()) count += !node.erased && node.op->name == op;
    return count;
  }

  TestGraph graph_;
  DeviceSet devices_;
  Subgraph subgraph_{OpRegistry::global()};
};

TEST_F(CopySources, FeedsAndSmallConstantsAreWhereTheyAreRead) {
  const Expr fed = graph_.feed(DType::kFloat, 0), known = constant(8);
  on(kTask1);
  EXPECT_EQ(inputs_are_here(call("Add", {fed, known})), (std::vector<bool>{true, true}));
  EXPECT_EQ(live("Const"), 1) << "nobody reads the first any more";
  EXPECT_EQ(live("_Arg"), 1);
}

TEST_F(CopySources, ATaskHasOneCopyOfASource) {
  const Expr fed = graph_.feed(DType::kFloat, 0);
  const Expr here = call("Add", {fed, fed});
  on(kTask1);
  const Expr there = call("Add", {fed, fed});
  EXPECT_EQ(inputs_are_here(call("Add", {here, there})),
            (std::vector<bool>{true, true, true, true, false, true}));
  EXPECT_EQ(live("_Arg"), 2);
}

TEST_F(CopySources, LargeConstantsAndWhatIsComputedStay) {
  const Expr large = constant(1 << 20), computed = call("Neg", {constant(1)});
  on(kTask1);
  EXPECT_EQ(inputs_are_here(call("Add", {large, computed})), (std::vector<bool>{false, false}));
}

TEST_F(CopySources, WhatWaitsStays) {
  const Expr first = call("Neg", {constant(1)});
  graph_.builder().context().control_inputs = {static_cast<NodeId>(first.id())};
  const Expr waits = constant(1);
  graph_.builder().context().control_inputs.clear();
  on(kTask1);
  EXPECT_EQ(inputs_are_here(call("Add", {waits, waits})), (std::vector<bool>{false, false}));
}

}  // namespace
}  // namespace millrace
