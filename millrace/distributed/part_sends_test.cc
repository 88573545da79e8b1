#include "millrace/distributed/part_sends.h"

#include <gtest/gtest.h>

#include <map>

#include "millrace/distributed/distributed_testing.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

constexpr std::string_view kTask2 = "/job:worker/replica:0/task:2";

class PartSendsTest : public testing::Test {
 protected:
  void on(std::string_view task) {
    graph_.builder().context().device = str_cat(task, "/device:CPU:0");
  }
  Expr named(std::string_view name, Expr value) {
    GraphBuilder& b = graph_.builder();
    return b.expr({b.add("Identity", name, {GraphBuilder::output(value)}).value(), 0});
  }
  // By the name of the node that is sent.
  std::map<std::string, int> rounds() {
    EXPECT_TRUE(graph_.builder().status().ok()) << graph_.builder().status().to_string();
    std::vector<Device::Info> devices;
    for (const std::string_view task : {kTask0, kTask1, kTask2}) {
      Device::Info& info = devices.emplace_back();
      info.name = DeviceName::parse(str_cat(task, "/device:CPU:0")).value();
      info.incarnation = devices.size();
    }
    const DeviceSet set(devices, 0);
    const std::vector<Partition> parts =
        partition(Subgraph::from_graph(graph_.graph()), PartitionBy::kTask, set).value();
    std::map<std::string, int> out;
    const std::vector<PartSend> sends = find_part_sends(parts, kTask0).value();
    for (const PartSend& send : sends) {
      const std::string tensor = RendezvousKey::parse(send.key)->tensor_name;
      out[tensor.substr(tensor.find('_', tensor.find('_') + 1) + 1)] = send.round;
    }
    return out;
  }

  TestGraph graph_;
};

using Rounds = std::map<std::string, int>;

TEST_F(PartSendsTest, CountsHowOftenTasksHearOfEachOther) {
  on(kTask0);
  const Expr ids = named("ids", graph_.feed(DType::kFloat, 0));
  on(kTask1);
  const Expr rows = named("rows", ids);
  on(kTask2);
  const Expr other = named("other", graph_.feed(DType::kFloat, 1));
  on(kTask0);
  const Expr gradient = named("gradient", call("Add", {rows, other}));
  on(kTask1);
  const Expr updated = named("updated", call("Add", {gradient, ids}));
  on(kTask0);
  const Expr third = named("third", updated);
  on(kTask1);
  named("last", third);
  EXPECT_EQ(rounds(), (Rounds{{"ids", 0},
                              {"rows", 0},
                              {"other", 0},
                              {"gradient", 1},
                              {"updated", 1},
                              {"third", PartSend::kUnknown}}));
}

TEST_F(PartSendsTest, WhatOthersSendEachOtherIsNotFollowed) {
  on(kTask1);
  const Expr passed = named("passed", graph_.feed(DType::kFloat, 0));
  on(kTask2);
  const Expr on_its_way = named("on_its_way", passed);
  on(kTask0);
  const Expr back = named("back", on_its_way);
  on(kTask1);
  named("end", back);
  EXPECT_EQ(rounds(), (Rounds{{"passed", PartSend::kUnknown},
                              {"on_its_way", PartSend::kUnknown},
                              {"back", PartSend::kUnknown}}));
}

TEST_F(PartSendsTest, WhatIsBehindABranchIsNotKnown) {
  on(kTask1);
  const Expr value = named("value", graph_.feed(DType::kFloat, 0));
  on(kTask0);
  const std::vector<Expr> sides =
      graph_.builder().emit("Switch", {value, graph_.feed(DType::kBool, 1)}, {});
  const Expr taken = named("taken", sides[1]);
  on(kTask1);
  named("end", taken);
  EXPECT_EQ(rounds(), (Rounds{{"value", 0}, {"taken", PartSend::kUnknown}}));
}

}  // namespace
}  // namespace millrace
