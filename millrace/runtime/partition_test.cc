// test-labels: threads
#include "millrace/runtime/partition.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "millrace/runtime/pass_testing.h"
#include "millrace/runtime/place.h"

namespace millrace {
namespace {

std::string cpu(int id, int task = 0) {
  return str_cat("/job:worker/replica:0/task:", task, "/device:CPU:", id);
}

std::vector<Partition> cut(const Subgraph& graph, const std::vector<Ref<Device>>& devices,
                           PartitionBy by = PartitionBy::kDevice) {
  Result<std::vector<Partition>> parts = partition(graph, by, device_set(devices));
  EXPECT_TRUE(parts.ok()) << parts.status().to_string();
  return parts.ok() ? *std::move(parts) : std::vector<Partition>();
}

const SubNode* find_op(const Subgraph& graph, std::string_view op) {
  for (const SubNode& node : graph.nodes()) {
    if (node.op->name == op) return &node;
  }
  return nullptr;
}

int32_t run_int(const Subgraph& graph, const std::vector<Ref<Device>>& devices,
                std::vector<Tensor> feeds = {}) {
  Result<std::vector<Tensor>> out = run_toy(graph, devices, std::move(feeds), 1);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return out.ok() ? (*out)[0].item<int32_t>() : INT32_MIN;
}

TEST(SemanticsOfPartition, OneDeviceStaysWhole) {
  ToyGraph g;
  Output x = g.constant(1, {.device = cpu(0)});
  g.fetch(g.add("Add", {x, x}, {.device = cpu(0)}), 0, {.device = cpu(0)});
  std::vector<Partition> parts = cut(g.graph, toy_devices(2));
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].location, cpu(0));
  EXPECT_EQ(parts[0].graph.size(), g.graph.size());
}

TEST(SemanticsOfPartition, OnePairForEachTensorAndDestination) {
  ToyGraph g;
  Output x = g.constant(1, {.device = cpu(0), .name = "x"});
  Output a = g.add("Add", {x, x}, {.device = cpu(1)});
  Output b = g.add("Mul", {x, a}, {.device = cpu(1)});
  g.fetch(b, 0, {.device = cpu(1)});
  std::vector<Ref<Device>> devices = toy_devices(2);
  std::vector<Partition> parts = cut(g.graph, devices);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(count_op(parts[0].graph, "_Send"), 1);
  EXPECT_EQ(count_op(parts[1].graph, "_Recv"), 1);
  const SubNode& send = *find_op(parts[0].graph, "_Send");
  const SubNode& recv = *find_op(parts[1].graph, "_Recv");
  EXPECT_EQ(send.attr<std::string>("tensor_name").value(), "edge_0_x");
  EXPECT_EQ(send.attr<std::string>("send_device").value(), cpu(0));
  EXPECT_EQ(send.attr<std::string>("recv_device").value(), cpu(1));
  EXPECT_EQ(static_cast<uint64_t>(send.attr<int64_t>("send_device_incarnation").value()),
            devices[0]->info().incarnation);
  for (const char* name : {"tensor_name", "send_device", "recv_device"}) {
    EXPECT_EQ(recv.attr<std::string>(name).value(), send.attr<std::string>(name).value());
  }
  EXPECT_TRUE(send.name.starts_with("x/_"));
  EXPECT_TRUE(recv.name.starts_with("x/_"));
  EXPECT_NE(send.name, recv.name);
  EXPECT_EQ(run_int(g.graph, devices), 2);
}

TEST(SemanticsOfPartition, ControlEdgesCarryAnEmptyFloat) {
  ToyGraph g;
  Output x = g.constant(1, {.device = cpu(0), .name = "x"});
  Output y = g.constant(2, {.device = cpu(1), .after = {x.node}, .name = "y"});
  g.fetch(y, 0, {.device = cpu(1)});
  std::vector<Partition> parts = cut(g.graph, toy_devices(2));
  ASSERT_EQ(parts.size(), 2u);
  const SubNode& send = *find_op(parts[0].graph, "_Send");
  const SubNode& empty = parts[0].graph.node(send.inputs[0].node);
  EXPECT_EQ(empty.op->name, "Const");
  EXPECT_EQ(empty.attr<Tensor>("value").value().shape(), Shape{0});
  EXPECT_EQ(parts[0].graph.node(empty.control_inputs.at(0)).name, "x");
  const SubNode& after = node_named(parts[1].graph, "y");
  const SubNode& identity = parts[1].graph.node(after.control_inputs.at(0));
  EXPECT_EQ(identity.op->name, "Identity");
  EXPECT_EQ(parts[1].graph.node(identity.inputs[0].node).op->name, "_Recv");
  EXPECT_EQ(run_int(g.graph, toy_devices(2)), 2);
}

TEST(SemanticsOfPartition, ReferencesAreReadLateAndNotShared) {
  ToyGraph g;
  Output var = g.add("Var", {}, {{"T", DType::kInt32}}, {.device = cpu(0), .name = "v"});
  Output set = g.add("Assign", {var, g.constant(7, {.device = cpu(0)})}, {.device = cpu(0)});
  Output one = g.constant(1, {.device = cpu(1), .after = {set.node}, .name = "one"});
  Output a = g.add("Add", {set, one}, {.device = cpu(1), .name = "a"});
  Output b = g.add("Add", {set, a}, {.device = cpu(1), .name = "b"});
  g.fetch(b, 0, {.device = cpu(1)});
  std::vector<Partition> parts = cut(g.graph, toy_devices(2));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(count_op(parts[1].graph, "_Recv"), 3);  // two reads and a control edge
  const SubNode& sum = node_named(parts[1].graph, "a");
  const SubNode& recv = parts[1].graph.node(sum.inputs[0].node);
  EXPECT_EQ(recv.attr<DType>("tensor_type").value(), DType::kInt32);
  ASSERT_EQ(recv.control_inputs.size(), 1u);
  EXPECT_EQ(parts[1].graph.node(recv.control_inputs[0]).name, "one");
  EXPECT_EQ(run_int(g.graph, toy_devices(2)), 15);
}

TEST(SemanticsOfPartition, AVariableItselfCannotTravel) {
  ToyGraph g;
  Output var = g.add("Var", {}, {{"T", DType::kInt32}}, {.device = cpu(0), .name = "v"});
  g.add("Assign", {var, g.constant(7, {.device = cpu(1)})}, {.device = cpu(1), .name = "set"});
  Status status = partition(g.graph, PartitionBy::kDevice, device_set(toy_devices(2))).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("\"set\""), std::string_view::npos) << status.to_string();
}

TEST(SemanticsOfPartition, UnknownDeviceIsAnError) {
  ToyGraph g;
  g.constant(1, {.device = cpu(9), .name = "x"});
  Status status = partition(g.graph, PartitionBy::kDevice, device_set(toy_devices(2))).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find(cpu(9)), std::string_view::npos);
}

// x < 0 ? x - 1 : x + 1, the branches on other devices than the rest.
Subgraph branches() {
  ToyGraph g;
  Output x = g.feed(DType::kInt32, 0, {.device = cpu(0)});
  Output zero = g.constant(0, {.device = cpu(0)});
  Output pred = g.add("Less", {x, zero}, {.device = cpu(2)});
  Output branch = g.add("Switch", {x, pred}, {.device = cpu(0)});
  Output pivot = g.add("Switch", {pred, pred}, {.device = cpu(2)});
  Output no = g.add("Identity", {pivot}, {.device = cpu(0)});
  Output yes = g.add("Identity", {Output{pivot.node, 1}}, {.device = cpu(0)});
  Output f = g.add("Add", {branch, g.constant(1, {.device = cpu(1), .after = {no.node}})},
                   {.device = cpu(1)});
  Output t =
      g.add("Sub", {Output{branch.node, 1}, g.constant(1, {.device = cpu(2), .after = {yes.node}})},
            {.device = cpu(2)});
  g.fetch(g.add("Merge", {f, t}, {.device = cpu(0)}), 0, {.device = cpu(0)});
  return std::move(g.graph);
}

TEST(SemanticsOfPartition, DeadValuesTravel) {
  Subgraph graph = branches();
  std::vector<Ref<Device>> devices = toy_devices(3);
  EXPECT_EQ(run_int(graph, devices, {Tensor::scalar<int32_t>(5)}), 6);
  EXPECT_EQ(run_int(graph, devices, {Tensor::scalar<int32_t>(-5)}), -6);
}

// i = 0, s = 1; while (i < n) { i += 1; s = s * 3 + i; }; the body's sum on `body`, s on `sum`.
Subgraph loop(int n, const std::string& leader, const std::string& body, const std::string& sum,
              bool loop_cond = true) {
  ToyGraph g;
  auto enter = [&](Output x, bool constant, const std::string& device) {
    return g.add("Enter", {x}, {{"frame_name", "loop"}, {"is_constant", constant}},
                 {.device = device});
  };
  Output i0 = enter(g.constant(0, {.device = leader}), false, leader);
  Output s0 = enter(g.constant(1, {.device = leader}), false, sum);
  Output limit = enter(g.constant(n, {.device = leader}), true, leader);
  Output three = enter(g.constant(3, {.device = leader}), true, body);
  Output i = g.add("Merge", {i0, i0}, {.device = leader});
  Output s = g.add("Merge", {s0, s0}, {.device = sum});
  Output pred = g.add("Less", {i, limit}, {.device = leader});
  if (loop_cond) pred = g.add("LoopCond", {pred}, {.device = leader});
  Output i_switch = g.add("Switch", {i, pred}, {.device = leader});
  Output s_switch = g.add("Switch", {s, pred}, {.device = sum});
  Output i_in = g.add("Identity", {Output{i_switch.node, 1}}, {.device = leader});
  Output s_in = g.add("Identity", {Output{s_switch.node, 1}}, {.device = sum});
  Output one = g.constant(1, {.device = body, .after = {i_in.node}});
  Output i_next = g.add("Add", {i_in, one}, {.device = leader});
  Output product = g.add("Mul", {s_in, three}, {.device = body});
  Output s_next = g.add("Add", {product, i_next}, {.device = body});
  g.graph.node(i.node).inputs[1] = g.add("NextIteration", {i_next}, {.device = leader});
  g.graph.node(s.node).inputs[1] = g.add("NextIteration", {s_next}, {.device = sum});
  g.fetch(g.add("Exit", {s_switch}, {.device = sum}), 0, {.device = leader});
  return std::move(g.graph);
}

int32_t loop_result(int n) {
  uint32_t s = 1;
  for (int i = 1; i <= n; ++i) s = s * 3 + static_cast<uint32_t>(i);
  return static_cast<int32_t>(s);
}

TEST(SemanticsOfLoops, OverTwoDevices) {
  for (int n : {0, 1, 2, 57}) {
    EXPECT_EQ(run_int(loop(n, cpu(0), cpu(1), cpu(0)), toy_devices(2)), loop_result(n)) << n;
    EXPECT_EQ(run_int(loop(n, cpu(1), cpu(0), cpu(0)), toy_devices(2)), loop_result(n)) << n;
  }
}

TEST(SemanticsOfLoops, OverThreeDevices) {
  for (int n : {0, 1, 2, 57}) {
    EXPECT_EQ(run_int(loop(n, cpu(0), cpu(1), cpu(2)), toy_devices(3)), loop_result(n)) << n;
  }
}

TEST(SemanticsOfLoops, ControlLoopHasTheShapeOfTheSpecification) {
  Subgraph graph = loop(3, cpu(0), cpu(1), cpu(0));
  std::vector<Partition> parts = cut(graph, toy_devices(2));
  ASSERT_EQ(parts.size(), 2u);
  const Subgraph& there = parts[1].graph;
  const SubNode* next = nullptr;
  for (const SubNode& node : there.nodes()) {
    if (node.op->name == "NextIteration" && node.name.starts_with("_cloop")) next = &node;
  }
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->inputs[0].index, 1);
  const SubNode& branch = there.node(next->inputs[0].node);
  EXPECT_EQ(branch.op->name, "Switch");
  const SubNode& merge = there.node(branch.inputs[0].node);
  EXPECT_EQ(merge.op->name, "Merge");
  EXPECT_EQ(&there.node(merge.inputs[1].node), next);
  const SubNode& enter = there.node(merge.inputs[0].node);
  EXPECT_EQ(enter.op->name, "Enter");
  EXPECT_EQ(enter.attr<std::string>("frame_name").value(), "loop");
  EXPECT_EQ(there.node(enter.inputs[0].node).attr<Tensor>("value").value().shape(), Shape{0});
  // Every _Recv of the frame waits for the Merge; the others come from the root.
  FrameInfo frames = analyze_frames(there).value();
  int gated = 0;
  for (NodeId id = 0; id < there.size(); ++id) {
    const SubNode& node = there.node(id);
    if (node.op->name != "_Recv") continue;
    if (node.control_inputs.empty()) {
      EXPECT_EQ(frames.node_frame[static_cast<size_t>(id)], 0);
    } else {
      EXPECT_EQ(&there.node(node.control_inputs[0]), &merge);
      ++gated;
    }
  }
  EXPECT_GE(gated, 3);
}

TEST(SemanticsOfLoops, OnlyTheCutMarksControlLoops) {
  const int size = loop(3, cpu(0), cpu(1), cpu(0)).size();
  for (NodeId id = 0; id < size; ++id) {
    Subgraph graph = loop(3, cpu(0), cpu(1), cpu(0));
    graph.node(id).set_attr("_control_loop", true);
    EXPECT_EQ(run_int(graph, toy_devices(2)), loop_result(3)) << graph.node(id).name;
  }
}

TEST(SemanticsOfLoops, ALocalLoopGetsNothing) {
  Subgraph graph = loop(3, cpu(1), cpu(1), cpu(1));
  graph.nodes().back().device = graph.devices().intern(cpu(0));
  for (const Partition& part : cut(graph, toy_devices(2))) {
    for (const SubNode& node : part.graph.nodes()) EXPECT_FALSE(node.name.starts_with("_cloop"));
  }
  EXPECT_EQ(run_int(graph, toy_devices(2)), loop_result(3));
}

TEST(SemanticsOfLoops, WithoutLoopCondIsAnError) {
  Subgraph graph = loop(3, cpu(0), cpu(1), cpu(0), /*loop_cond=*/false);
  Status status = partition(graph, PartitionBy::kDevice, device_set(toy_devices(2))).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("LoopCond"), std::string_view::npos) << status.to_string();
}

TEST(SemanticsOfLoops, NextIterationMustBeWithItsMerge) {
  Subgraph graph = loop(3, cpu(0), cpu(1), cpu(0));
  for (SubNode& node : graph.nodes()) {
    if (node.op->name == "NextIteration") node.device = graph.devices().intern(cpu(1));
  }
  EXPECT_EQ(partition(graph, PartitionBy::kDevice, device_set(toy_devices(2))).status().code(),
            Code::kInvalidArgument);
  place_control_flow(graph);
  EXPECT_EQ(run_int(graph, toy_devices(2)), loop_result(3));
}

TEST(SemanticsOfPartition, ByTaskAndThenByDevice) {
  std::vector<Ref<Device>> devices = toy_devices(2, 2);
  EXPECT_EQ(run_int(loop(20, cpu(0, 0), cpu(1, 1), cpu(0, 1)), devices), loop_result(20));
  EXPECT_EQ(run_int(loop(20, cpu(1, 1), cpu(0, 0), cpu(1, 0)), devices), loop_result(20));

  std::vector<Partition> parts =
      cut(loop(3, cpu(0, 0), cpu(1, 1), cpu(0, 1)), devices, PartitionBy::kTask);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].location, "/job:worker/replica:0/task:0");
  // The second cut leaves the keys of the first.
  std::set<std::string> names, keys;
  for (const Partition& task : parts) {
    for (const SubNode& node : task.graph.nodes()) {
      if (node.op->traits.send) keys.insert(node.attr<std::string>("tensor_name").value());
    }
    for (const Partition& part : cut(task.graph, devices)) {
      for (const SubNode& node : part.graph.nodes()) {
        EXPECT_TRUE(names.insert(node.name).second) << node.name;
        if (node.op->traits.send) keys.erase(node.attr<std::string>("tensor_name").value());
      }
    }
  }
  EXPECT_TRUE(keys.empty());
}

// Random programs of arithmetic, branches and loops in one another, each node on a random device.
class ProgramBuilder {
 public:
  ProgramBuilder(uint32_t seed, std::vector<std::string> devices)
      : shape_(seed), where_(seed + 1), devices_(std::move(devices)) {}

  Subgraph build() {
    std::vector<Output> vars;
    for (int i = 0; i < 3; ++i) vars.push_back(constant(pick(10) - 3, -1));
    vars = block(std::move(vars), -1, 0);
    for (size_t i = 0; i < 2; ++i) g_.fetch(vars[i], static_cast<int>(i), here());
    place_control_flow(g_.graph);
    return std::move(g_.graph);
  }

 private:
  int pick(int n) { return static_cast<int>(shape_() % static_cast<uint32_t>(n)); }
  ToyPlace here(NodeId after = -1) {
    ToyPlace place;
    place.device = devices_[where_() % devices_.size()];
    if (after >= 0) place.after.push_back(after);
    return place;
  }
  Output constant(int32_t value, NodeId pivot) { return g_.constant(value, here(pivot)); }
  Output op(std::string_view name, std::vector<Output> inputs) {
    return g_.add(name, std::move(inputs), here());
  }

  // Statements that change `vars`; all are in one frame and branch, which `pivot` (-1: the root)
  // stands for.
  std::vector<Output> block(std::vector<Output> vars, NodeId pivot, int depth) {
    int statements = 1 + pick(3);
    for (int s = 0; s < statements; ++s) {
      int kind = pick(depth < 3 ? 6 : 3);
      size_t to = static_cast<size_t>(pick(static_cast<int>(vars.size())));
      Output a = vars[static_cast<size_t>(pick(static_cast<int>(vars.size())))];
      Output b = pick(3) == 0 ? constant(pick(7), pivot)
                              : vars[static_cast<size_t>(pick(static_cast<int>(vars.size())))];
      if (kind < 3) {
        constexpr const char* kOps[] = {"Add", "Mul", "Sub"};
        vars[to] = op(kOps[kind], {a, b});
        if (pick(4) == 0)
          g_.graph.node(vars[to].node)
              .control_inputs.push_back(vars[0].node == vars[to].node ? a.node : vars[0].node);
      } else if (kind == 3) {
        vars = cond(std::move(vars), op("Less", {a, b}), depth);
      } else {
        vars = loop(std::move(vars), pivot, depth);
      }
    }
    return vars;
  }

  std::vector<Output> cond(std::vector<Output> vars, Output pred, int depth) {
    Output split = op("Switch", {pred, pred});
    std::vector<std::vector<Output>> results;
    std::vector<Output> switches;
    for (Output v : vars) switches.push_back(op("Switch", {v, pred}));
    for (int32_t side : {0, 1}) {
      NodeId pivot = op("Identity", {Output{split.node, side}}).node;
      std::vector<Output> inside;
      for (Output s : switches) inside.push_back({s.node, side});
      results.push_back(block(std::move(inside), pivot, depth + 1));
    }
    for (size_t i = 0; i < vars.size(); ++i) vars[i] = op("Merge", {results[0][i], results[1][i]});
    return vars;
  }

  std::vector<Output> loop(std::vector<Output> vars, NodeId pivot, int depth) {
    std::string frame = str_cat("loop: no. ", next_frame_++);
    int64_t parallel = 1 + pick(4);
    auto enter = [&](Output x, bool constant) {
      return g_.add(
          "Enter", {x},
          {{"frame_name", frame}, {"is_constant", constant}, {"parallel_iterations", parallel}},
          here());
    };
    std::vector<Output> invariants = {enter(vars.back(), true),
                                      enter(constant(pick(4), pivot), true)};
    vars.pop_back();
    std::vector<Output> initial = {constant(0, pivot)};
    initial.insert(initial.end(), vars.begin(), vars.end());
    std::vector<Output> merges, switches, inside;
    for (Output v : initial) {
      Output e = enter(v, false);
      merges.push_back(op("Merge", {e, e}));
    }
    Output pred = op("LoopCond", {op("Less", {merges[0], invariants[1]})});
    for (Output m : merges) {
      switches.push_back(op("Switch", {m, pred}));
      inside.push_back(op("Identity", {Output{switches.back().node, 1}}));
    }
    NodeId body_pivot = inside[0].node;
    std::vector<Output> body(inside.begin() + 1, inside.end());
    body.push_back(g_.add("Identity", {invariants[0]}, here(body_pivot)));
    body = block(std::move(body), body_pivot, depth + 1);
    std::vector<Output> next = {op("Add", {inside[0], constant(1, body_pivot)})};
    next.insert(next.end(), body.begin(), body.end() - 1);
    for (size_t i = 0; i < merges.size(); ++i) {
      g_.graph.node(merges[i].node).inputs[1] = op("NextIteration", {next[i]});
    }
    std::vector<Output> out;
    for (size_t i = 1; i < switches.size(); ++i) out.push_back(op("Exit", {switches[i]}));
    out.push_back(out[0]);
    return out;
  }

  std::mt19937 shape_, where_;
  std::vector<std::string> devices_;
  int next_frame_ = 0;
  ToyGraph g_;
};

void compare_with_one_device(int per_task, int tasks, uint32_t first_seed, int programs) {
  std::vector<Ref<Device>> devices = toy_devices(per_task, tasks);
  std::vector<std::string> names;
  for (const Ref<Device>& device : devices) names.push_back(device->name());
  for (uint32_t seed = first_seed; seed < first_seed + static_cast<uint32_t>(programs); ++seed) {
    Subgraph one = ProgramBuilder(seed, {names[0]}).build();
    Subgraph many = ProgramBuilder(seed, names).build();
    Result<std::vector<Tensor>> expected = run_toy(one, {devices[0]}, {}, 2);
    ASSERT_TRUE(expected.ok()) << "seed " << seed << ": " << expected.status().to_string();
    Result<std::vector<Tensor>> got = run_toy(many, devices, {}, 2);
    ASSERT_TRUE(got.ok()) << "seed " << seed << ": " << got.status().to_string();
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(bit_equal((*expected)[i], (*got)[i]))
          << "seed " << seed << ", result " << i << ": " << (*expected)[i].to_string()
          << " on one device, " << (*got)[i].to_string() << " on several";
    }
  }
}

TEST(SemanticsOfRandom, TwoDevices) { compare_with_one_device(2, 1, 1000, 60); }
TEST(SemanticsOfRandom, ThreeDevices) { compare_with_one_device(3, 1, 2000, 60); }
TEST(SemanticsOfRandom, TwoTasksOfTwoDevices) { compare_with_one_device(2, 2, 3000, 60); }

}  // namespace
}  // namespace millrace
