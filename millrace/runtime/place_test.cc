#include "millrace/runtime/place.h"

#include <gtest/gtest.h>

#include "millrace/base/log.h"
#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

std::string at(std::string_view device, int task = 0) {
  return str_cat("/job:worker/replica:0/task:", task, "/device:", device);
}

Status place_on(ToyGraph& g, std::vector<std::string> devices, bool soft = false) {
  PlaceOptions options;
  options.kernels = &ToyOps::get().kernels;
  options.soft = soft;
  return place(g.graph, named_devices(std::move(devices)), options);
}

std::vector<std::string> two_cpus() { return {at("CPU:0"), at("CPU:1")}; }
std::vector<std::string> cpu_and_gpus() { return {at("CPU:0"), at("GPU:0"), at("GPU:1")}; }

void expect_error(const Status& status, std::vector<std::string> parts) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string_view::npos)
        << "expected " << part << " in: " << status.to_string();
  }
}

AttrMap with(std::string_view name) {
  return {{"_class", std::vector<std::string>{str_cat("loc:@", name), "other"}}};
}

TEST(SemanticsOfPlacement, WishesAreObeyed) {
  ToyGraph g;
  Output x = g.constant(1, {.device = "/device:CPU:1", .name = "x"});
  g.add("Identity", {x}, {.device = "/cpu:0", .name = "y"});
  ASSERT_TRUE(place_on(g, two_cpus()).ok());
  EXPECT_EQ(g.device("x"), at("CPU:1"));
  EXPECT_EQ(g.device("y"), at("CPU:0"));
}

TEST(SemanticsOfPlacement, BestKindFirst) {
  ToyGraph g;
  Output x = g.feed(DType::kInt32, 0, {.device = at("CPU:0"), .name = "x"});
  Output y = g.add("Add", {x, x}, {.name = "y"});
  Output z = g.add("CpuOnly", {y}, {.name = "z"});
  g.add("Add", {z, z}, {.name = "w"});
  ASSERT_TRUE(place_on(g, cpu_and_gpus()).ok());
  EXPECT_EQ(g.device("x"), at("CPU:0"));
  EXPECT_EQ(g.device("y"), at("GPU:0"));
  EXPECT_EQ(g.device("z"), at("CPU:0"));
  EXPECT_EQ(g.device("w"), at("GPU:0"));
}

TEST(SemanticsOfPlacement, NodesFollowMostOfTheirInputs) {
  ToyGraph g;
  Output a = g.constant(1, {.device = "/cpu:1"});
  Output b = g.constant(2, {.device = "/cpu:0"});
  Output c = g.add("Add", {a, a}, {.name = "c"});
  g.add("Add", {b, b}, {.name = "d"});
  g.add("Add", {c, c}, {.name = "e"});
  ASSERT_TRUE(place_on(g, two_cpus()).ok());
  EXPECT_EQ(g.device("c"), at("CPU:1"));
  EXPECT_EQ(g.device("d"), at("CPU:0"));
  EXPECT_EQ(g.device("e"), at("CPU:1"));
}

// The client's is the first that is given; by name it is the last.
TEST(SemanticsOfPlacement, NodesThatMightBeAnywhereAreOnTheClientsTask) {
  ToyGraph g;
  Output there = g.constant(1, {.device = "/job:worker/task:0"});
  Output here = g.constant(2, {.device = "/job:worker/task:1"});
  g.constant(3, {.name = "source"});
  g.add("Add", {there, here}, {.name = "tie"});
  g.add("Add", {there, there}, {.name = "clear"});
  ASSERT_TRUE(place_on(g, {at("CPU:0", 1), at("CPU:0", 0)}).ok());
  EXPECT_EQ(g.device("source"), at("CPU:0", 1));
  EXPECT_EQ(g.device("tie"), at("CPU:0", 1));
  EXPECT_EQ(g.device("clear"), at("CPU:0", 0));
}

TEST(SemanticsOfPlacement, SourcesGoToTheirConsumers) {
  ToyGraph g;
  Output one = g.constant(1, {.name = "one"});
  Output shared = g.constant(2, {.name = "shared"});
  g.add("Add", {one, shared}, {.device = "/cpu:1"});
  g.add("Identity", {shared}, {.device = "/cpu:0"});
  ASSERT_TRUE(place_on(g, two_cpus()).ok());
  EXPECT_EQ(g.device("one"), at("CPU:1"));
  EXPECT_EQ(g.device("shared"), at("CPU:0"));
}

TEST(SemanticsOfPlacement, ShapesAreReadWhereTheTensorIs) {
  ToyGraph g;
  Output x = g.feed(DType::kInt32, 0, {.device = "/cpu:0"});
  g.add("SizeOf", {g.add("CpuOnly", {x}, {.name = "x"})}, {.name = "size"});
  ASSERT_TRUE(place_on(g, cpu_and_gpus()).ok());
  EXPECT_EQ(g.device("size"), at("CPU:0"));
}

TEST(SemanticsOfPlacement, ColocationMergesWishes) {
  ToyGraph g;
  g.add("Var", {}, {{"T", DType::kFloat}}, {.device = "/task:1", .name = "v"});
  AttrMap attrs = with("v");
  attrs.set("dtype", DType::kInt32);
  attrs.set("value", Tensor::scalar<int32_t>(1));
  g.add("Const", {}, std::move(attrs), {.device = "/cpu:1", .name = "x"});
  ASSERT_TRUE(place_on(g, {at("CPU:0"), at("CPU:1"), at("CPU:0", 1), at("CPU:1", 1)}).ok());
  EXPECT_EQ(g.device("v"), at("CPU:1", 1));
  EXPECT_EQ(g.device("x"), at("CPU:1", 1));
}

TEST(SemanticsOfPlacement, ColocationClash) {
  auto build = [] {
    ToyGraph g;
    Output x = g.constant(1, {.device = "/cpu:1", .name = "x"});
    g.add("Identity", {x}, with("x"), {.device = "/cpu:0", .name = "y"});
    return g;
  };
  ToyGraph hard = build();
  expect_error(place_on(hard, two_cpus()), {"\"x\"", "\"y\"", "/device:CPU:1", "/device:CPU:0"});
  ToyGraph soft = build();
  ASSERT_TRUE(place_on(soft, two_cpus(), true).ok());
  EXPECT_EQ(soft.node("x").device, soft.node("y").device);
}

TEST(SemanticsOfPlacement, ColocationWithAnUnknownNode) {
  ToyGraph g;
  g.add("Identity", {g.constant(1)}, with("nobody"), {.name = "y"});
  expect_error(place_on(g, two_cpus()), {"\"y\"", "\"nobody\""});
}

TEST(SemanticsOfPlacement, GroupsWithoutACommonKind) {
  ToyGraph g;
  Output x = g.constant(1, {.device = "/gpu:0", .name = "x"});
  g.add("CpuOnly", {x}, with("x"), {.name = "y"});
  expect_error(place_on(g, cpu_and_gpus()), {"\"x\"", "\"y\"", "/device:GPU:0", at("GPU:1")});
  ASSERT_TRUE(place_on(g, cpu_and_gpus(), true).ok());
  EXPECT_EQ(g.device("x"), at("CPU:0"));
}

TEST(SemanticsOfPlacement, ReferenceEdgesDropTheDestinationsWish) {
  ToyGraph g;
  Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {.device = "/cpu:1", .name = "v"});
  Output set = g.add("Assign", {v, g.constant(1)}, {.device = "/cpu:0", .name = "set"});
  g.add("Identity", {set}, {.device = "/cpu:0", .name = "read"});
  ASSERT_TRUE(place_on(g, two_cpus()).ok());
  EXPECT_EQ(g.device("v"), at("CPU:1"));
  EXPECT_EQ(g.device("set"), at("CPU:1"));
  EXPECT_EQ(g.device("read"), at("CPU:0"));
}

TEST(SemanticsOfPlacement, ResourceEdgesTakeTheMoreSpecificWish) {
  ToyGraph g;
  Output h = g.add("Handle", {}, {.device = "/job:worker", .name = "h"});
  g.add("UseHandle", {h}, {.device = "/job:worker/cpu:1", .name = "use"});
  ASSERT_TRUE(place_on(g, two_cpus()).ok());
  EXPECT_EQ(g.device("h"), at("CPU:1"));
  EXPECT_EQ(g.device("use"), at("CPU:1"));
}

TEST(SemanticsOfPlacement, WhatDoesNotExist) {
  auto build = [] {
    ToyGraph g;
    g.constant(1, {.device = "/gpu:7", .name = "x"});
    return g;
  };
  ToyGraph hard = build();
  expect_error(place_on(hard, two_cpus()),
               {"Const \"x\"", "/device:GPU:7", "does not exist", at("CPU:0"), at("CPU:1")});
  ToyGraph soft = build();
  ASSERT_TRUE(place_on(soft, two_cpus(), true).ok());
  EXPECT_EQ(soft.device("x"), at("CPU:0"));
}

TEST(SemanticsOfPlacement, SoftPlacementKeepsTheTask) {
  ToyGraph g;
  g.constant(1, {.device = "/task:1/gpu:0", .name = "x"});
  g.constant(1, {.device = "/task:7", .name = "y"});
  g.graph.node(1).erased = true;
  ASSERT_TRUE(place_on(g, {at("CPU:0"), at("CPU:0", 1)}, true).ok());
  EXPECT_EQ(g.device("x"), at("CPU:0", 1));
  g.graph.node(1).erased = false;
  expect_error(place_on(g, {at("CPU:0"), at("CPU:0", 1)}, true), {"\"y\"", "/task:7"});
}

TEST(SemanticsOfPlacement, NoKernelAnywhere) {
  ToyGraph g;
  Output x = g.constant(1, {.device = "/device:CPU:0"});
  g.add("CpuOnly", {x}, {.name = "y"});
  expect_error(place_on(g, {at("GPU:0")}, true), {"CpuOnly \"y\"", at("GPU:0")});
}

TEST(SemanticsOfPlacement, MalformedDevice) {
  ToyGraph g;
  g.constant(1, {.device = "gpu zero", .name = "x"});
  expect_error(place_on(g, two_cpus(), true), {"\"x\"", "gpu zero"});
}

TEST(SemanticsOfPlacement, LogsWhenAsked) {
  struct Sink : LogSink {
    void write(const LogRecord& record) override { text += record.text; }
    std::string text;
  } sink;
  ToyGraph g;
  g.constant(1, {.name = "x"});
  PlaceOptions options;
  options.kernels = &ToyOps::get().kernels;
  options.log = true;
  LogLevel before = log_level();
  set_log_level(LogLevel::kInfo);
  LogSink* old = set_log_sink(&sink);
  Status status = place(g.graph, named_devices(two_cpus()), options);
  set_log_sink(old);
  set_log_level(before);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(sink.text, str_cat("Const \"x\" on ", at("CPU:0")));
}

TEST(Pinner, OnlyGroupsWithState) {
  ToyGraph g;
  Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {.name = "v"});
  Output x = g.constant(1, {.name = "x"});
  g.add("Assign", {v, x}, {.device = "/cpu:1", .name = "set"});
  g.add("Add", {x, x}, {.device = "/cpu:0", .name = "sum"});
  NodeId later = g.graph.size();
  PlaceOptions options;
  options.kernels = &ToyOps::get().kernels;
  DeviceSet devices = named_devices(two_cpus());
  Pinner pinner(devices, options);
  pinner.pin(g.graph, 0);
  EXPECT_EQ(g.device("v"), at("CPU:1"));
  EXPECT_EQ(g.device("set"), at("CPU:1"));
  EXPECT_EQ(g.device("x"), "");
  EXPECT_EQ(g.device("sum"), "/cpu:0");

  // What comes later does not move it.
  g.add("Assign", {v, x}, {.device = "/cpu:0", .name = "again"});
  Output impossible = g.add("Tick", {}, {.device = "/gpu:3", .name = "impossible"});
  pinner.pin(g.graph, later);
  EXPECT_EQ(g.device("v"), at("CPU:1"));
  EXPECT_EQ(g.device("impossible"), "/gpu:3");
  expect_error(place(g.graph, devices, options), {"\"impossible\""});
  g.graph.node(impossible.node).erased = true;
  ASSERT_TRUE(place(g.graph, devices, options).ok());
  EXPECT_EQ(g.device("v"), at("CPU:1"));
  EXPECT_EQ(g.device("again"), at("CPU:1"));
}

// A client that adds a variable, or an op on the same variable, between any two runs.
TEST(Pinner, CostsInProportionToWhatIsAdded) {
  PlaceOptions options;
  options.kernels = &ToyOps::get().kernels;
  DeviceSet devices = named_devices(two_cpus());
  for (bool one_variable : {false, true}) {
    ToyGraph g;
    Pinner pinner(devices, options);
    const Output x = g.constant(1, {.name = "x"});
    Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {.device = "/cpu:1", .name = "v"});
    pinner.pin(g.graph, 0);
    constexpr int kTimes = 10'000;
    for (int i = 0; i < kTimes; ++i) {
      const NodeId first = g.graph.size();
      if (!one_variable) {
        v = g.add("Var", {}, {{"T", DType::kInt32}},
                  {.device = i % 2 == 0 ? "/cpu:0" : "", .name = str_cat("v", i)});
      } else {
        g.add("Tick", {}, {{"_class", std::vector<std::string>{"loc:@v"}}},
              {.name = str_cat("tick", i)});
      }
      g.add("Assign", {v, x}, {.name = str_cat("set", i)});
      pinner.pin(g.graph, first);
    }
    EXPECT_EQ(g.device("v"), at("CPU:1"));
    EXPECT_EQ(g.graph.device_name(g.graph.nodes().back()),
              one_variable ? at("CPU:1") : at("CPU:0"));
    EXPECT_LE(pinner.work(), 10 * g.graph.size());
  }
}

TEST(Pinner, ColocationWithWhatComesLater) {
  PlaceOptions options;
  options.kernels = &ToyOps::get().kernels;
  DeviceSet devices = named_devices(two_cpus());
  ToyGraph g;
  Pinner pinner(devices, options);
  g.add("Tick", {}, {{"_class", std::vector<std::string>{"loc:@late"}}}, {.name = "early"});
  pinner.pin(g.graph, 0);
  EXPECT_EQ(g.device("early"), "");
  const NodeId first = g.graph.size();
  g.add("Tick", {}, {.device = "/cpu:1", .name = "late"});
  pinner.pin(g.graph, first);
  EXPECT_EQ(g.device("early"), at("CPU:1"));
  EXPECT_EQ(g.device("late"), at("CPU:1"));
}

TEST(SemanticsOfControlFlow, MovesToTheData) {
  ToyGraph g;
  Output x = g.constant(1, {.device = at("CPU:1")});
  Output enter =
      g.add("Enter", {x}, {{"frame_name", "f"}}, {.device = at("CPU:0"), .name = "enter"});
  Output merge = g.add("Merge", {enter, enter}, {.device = at("CPU:1"), .name = "merge"});
  Output pred = g.add("LoopCond", {g.add("Less", {merge, merge}, {.device = at("CPU:0")})},
                      {.device = at("CPU:0")});
  Output branch = g.add("Switch", {merge, pred}, {.device = at("CPU:0"), .name = "switch"});
  g.graph.node(merge.node).inputs[1] =
      g.add("NextIteration", {Output{branch.node, 1}}, {.device = at("CPU:0"), .name = "next"});
  g.add("Exit", {branch}, {.device = at("CPU:0"), .name = "exit"});
  place_control_flow(g.graph);
  for (const char* name : {"enter", "merge", "switch", "next", "exit"}) {
    EXPECT_EQ(g.device(name), at("CPU:1")) << name;
  }
}

}  // namespace
}  // namespace millrace
