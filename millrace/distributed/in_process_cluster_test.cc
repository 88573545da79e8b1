// test-labels: threads
#include "millrace/distributed/in_process_cluster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/grpc/grpc_transport.h"

namespace millrace {
namespace {

using Values = TestGraph::Values;

class Cluster : public testing::TestWithParam<InProcessCluster::Transport> {
 protected:
  void SetUp() override {
    if (GetParam() != InProcessCluster::Transport::kGrpc) return;
    if (const Status status = grpc_available(); !status.ok()) GTEST_SKIP() << status.to_string();
  }
};

// The message of an error has this text in it.
testing::AssertionResult mentions(const Status& status, std::string_view text) {
  if (status.message().find(text) != std::string_view::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status.to_string() << " does not mention " << text;
}

TEST_P(Cluster, SumsOverTwoTasks) {
  ClusterTest t({.transport = GetParam()});
  t.on(kTask0);
  Expr x = t.placeholder(DType::kFloat);
  Expr a = t.add("Mul", {x, x});
  t.on(kTask1);
  Expr b = t.add("Add", {a, x});
  t.on(kTask0);
  Expr y = t.add("Add", {b, a});
  t.open();
  for (float v : {1.f, 2.f, 3.f}) {
    Result<float> sum = t.run(y, {{t.name(x), Tensor::scalar<float>(v)}});
    ASSERT_TRUE(sum.ok()) << sum.status().to_string();
    EXPECT_EQ(*sum, 2 * v * v + v);
  }
  EXPECT_EQ(t.session().list_devices().size(), 2u);
  Result<std::string> plan = t.session().explain({{t.name(x)}, {t.name(y)}, {}});
  ASSERT_TRUE(plan.ok());
  EXPECT_NE(plan->find("_Recv"), std::string::npos);
  EXPECT_EQ(t.open_steps(), 0u);
}

TEST_P(Cluster, SeveralDevicesOnEachTask) {
  ClusterTest t({.transport = GetParam(), .jobs = {{"ps", 1}, {"worker", 2}}, .cpu_devices = 2});
  t.on("/job:ps/task:0/device:CPU:1");
  Expr x = t.placeholder(DType::kFloat);
  Expr sum = t.add("Identity", {x});
  for (const char* device : {"/job:worker/task:1/cpu:1", "/job:worker/task:1/cpu:0",
                             "/job:worker/task:0/cpu:1", "/job:ps/task:0/cpu:0"}) {
    t.on(device);
    sum = t.add("Add", {sum, x});
  }
  t.open();
  EXPECT_EQ(t.session().list_devices().size(), 6u);
  Result<float> y = t.run(sum, {{t.name(x), Tensor::scalar<float>(3)}});
  ASSERT_TRUE(y.ok()) << y.status().to_string();
  EXPECT_EQ(*y, 15);
}

TEST_P(Cluster, TheTargetChoosesTheSessionsTask) {
  ClusterTest t({.transport = GetParam()});
  Expr c = t.constant(4);
  SessionOptions options;
  const std::string& name = t.cluster_name();
  options.target = str_cat("inprocess://", name, "/job:worker/task:1");
  t.open(options);
  EXPECT_EQ(t.run(c).value(), 4);
  auto create = [&](std::string target) {
    SessionOptions wrong;
    wrong.target = std::move(target);
    return Session::create(Ref<Graph>(&t.graph().graph()), wrong).status().code();
  };
  EXPECT_EQ(create("inprocess://nobody"), Code::kNotFound);
  EXPECT_EQ(create(str_cat("inprocess://", name, "/job:worker/task:9")), Code::kNotFound);
  EXPECT_EQ(create(str_cat("inprocess://", name, "/job:worker")), Code::kInvalidArgument);
  EXPECT_EQ(InProcessCluster::create({.name = name}).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(InProcessCluster::create({.name = "a/b"}).status().code(), Code::kInvalidArgument);
}

TEST_P(Cluster, ControlEdgesCrossTasks) {
  ClusterTest t({.transport = GetParam()});
  t.on(kTask1);
  std::string assertion =
      t.add_target("Assert", {t.graph().constant(false), t.graph().constant(1)});
  t.on(kTask0);
  t.graph().builder().context().control_inputs = {t.graph().graph().find(assertion)};
  Expr y = t.add("Identity", {t.constant(1)});
  t.graph().builder().context().control_inputs.clear();
  t.open();
  EXPECT_EQ(t.run(y).status().code(), Code::kInvalidArgument);
}

TEST_P(Cluster, LoopsOverBothTasks) {
  ClusterTest t({.transport = GetParam()});
  t.on(kTask0);
  Expr n = t.placeholder(DType::kInt32);
  Expr zero = t.graph().constant(0), one = t.graph().constant(1);
  Expr start = t.constant(1), two = t.constant(2);
  Values out = t.graph().while_loop(
      "loop", {zero, start}, {n, one, two},
      [&](Values v, Values c) { return t.add("Less", {v[0], c[0]}); },
      [&](Values v, Values c) -> Values {
        Expr next = t.add("Add", {v[0], c[1]});
        t.on(kTask1);
        Expr doubled = t.add("Mul", {v[1], c[2]});
        t.on(kTask0);
        return {next, doubled};
      });
  t.open();
  for (int32_t rounds : {0, 1, 5, 100}) {
    Result<float> y = t.run(out[1], {{t.name(n), Tensor::scalar<int32_t>(rounds)}});
    ASSERT_TRUE(y.ok()) << rounds << ": " << y.status().to_string();
    EXPECT_EQ(*y, std::ldexp(1.f, rounds));
  }
  EXPECT_EQ(t.open_steps(), 0u);
}

TEST_P(Cluster, BranchesNotTakenAreDeadOnTheOtherTask) {
  ClusterTest t({.transport = GetParam()});
  t.on(kTask0);
  Expr p = t.placeholder(DType::kBool);
  Expr y = t.graph().cond(
      p, t.constant(3),
      [&](Expr x) {
        t.on(kTask1);
        return t.add("Mul", {x, x});
      },
      [&](Expr x) {
        t.on(kTask1);
        return t.add("Neg", {x});
      });
  t.open();
  EXPECT_EQ(t.run(y, {{t.name(p), Tensor::scalar<bool>(true)}}).value(), 9);
  EXPECT_EQ(t.run(y, {{t.name(p), Tensor::scalar<bool>(false)}}).value(), -3);
}

// A variable on task 1, read on task 0.
struct VariableOnTask1 {
  explicit VariableOnTask1(ClusterTest& t) {
    t.on(kTask1);
    Expr handle =
        t.add("VarHandleOp", {},
              {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}, {"shared_name", "v"}});
    t.on("");
    init = t.add_target("AssignVariableOp", {handle, t.constant(5)}, {{"dtype", DType::kFloat}});
    increment =
        t.add_target("AssignAddVariableOp", {handle, t.constant(1)}, {{"dtype", DType::kFloat}});
    Expr value = t.add("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}});
    t.on(kTask0);
    read = t.add("Identity", {value});
  }
  std::string init, increment;
  Expr read;
};

TEST_P(Cluster, VariablesLiveOnTheirTask) {
  ClusterTest t({.transport = GetParam()});
  VariableOnTask1 v(t);
  t.open();
  EXPECT_FALSE(t.run(v.read).ok());
  ASSERT_TRUE(t.session().run({}, {}, {v.init}).ok());
  ASSERT_TRUE(t.session().run({}, {}, {v.increment}).ok());
  EXPECT_EQ(t.run(v.read).value(), 6);
  // The server's, not the session's.
  t.open();
  EXPECT_EQ(t.run(v.read).value(), 6);
  ASSERT_TRUE(t.session().reset().ok());
  EXPECT_FALSE(t.run(v.read).ok());
}

TEST_P(Cluster, WhatARunHasChangedIsNotChangedAgainWhenItIsTriedAgain) {
  ClusterTest t({.transport = GetParam()});
  VariableOnTask1 v(t);
  t.on(kTask0);
  Expr stuck = t.add("TestStuck", {});
  t.open();
  ASSERT_TRUE(t.session().run({}, {}, {v.init}).ok());
  RunOptions first;
  first.update = {7, 1};
  first.cancel = make_ref<CancellationToken>();
  std::thread canceller([&] {
    ClusterTest* cluster = &t;
    while (cluster->run(v.read).value() != 6) std::this_thread::yield();
    first.cancel->cancel(cancelled("half of it is done"));
  });
  EXPECT_FALSE(t.session().run({}, {t.name(stuck)}, {v.increment}, first).ok());
  canceller.join();
  EXPECT_EQ(t.open_steps(), 0u);
  // Also by another session; the next run of the stream is another one.
  t.open();
  RunOptions again;
  again.update = {7, 1};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(t.session().run({}, {}, {v.increment}, again).ok());
    EXPECT_EQ(t.run(v.read).value(), 6);
  }
  again.update = {7, 2};
  ASSERT_TRUE(t.session().run({}, {}, {v.increment}, again).ok());
  EXPECT_EQ(t.run(v.read).value(), 7);
  again.update = {7, 1};  // what comes late changes nothing
  EXPECT_EQ(t.session().run({}, {}, {v.increment}, again).status().code(), Code::kAborted);
  EXPECT_EQ(t.run(v.read).value(), 7);
}

// Every iteration adds 1, but for the one that is fed, which fails.
TEST_P(Cluster, WhatALoopHasChangedIsNotChangedAgainWhenItIsTriedAgain) {
  ClusterTest t({.transport = GetParam()});
  VariableOnTask1 v(t);
  t.on(kTask1);
  Expr handle =
      t.add("VarHandleOp", {},
            {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}, {"shared_name", "v"}});
  Expr bad = t.placeholder(DType::kInt32);
  Values out = t.graph().while_loop(
      "loop", {t.graph().constant(0)},
      {handle, bad, t.constant(1), t.graph().constant(1), t.graph().constant(5)},
      [&](Values i, Values c) { return t.add("Less", {i[0], c[4]}); },
      [&](Values i, Values c) -> Values {
        std::vector<NodeId>& after = t.graph().builder().context().control_inputs;
        const auto then = [&](std::string_view op, std::vector<Expr> inputs, const AttrMap& attrs) {
          after = {t.graph().graph().find(t.add_target(op, std::move(inputs), attrs))};
        };
        then("Assert", {t.add("NotEqual", {i[0], c[1]}), i[0]}, {});
        then("AssignAddVariableOp", {c[0], c[2]}, {{"dtype", DType::kFloat}});
        Expr next = t.add("Add", {i[0], c[3]});
        after.clear();
        return {next};
      });
  t.open();
  ASSERT_TRUE(t.session().run({}, {}, {v.init}).ok());
  const auto run = [&](int32_t bad_iteration, int64_t number) {
    RunOptions options;
    options.update = {7, number};
    const Session::Feeds feeds = {{t.name(bad), Tensor::scalar(bad_iteration)}};
    return t.session().run(feeds, {t.name(out[0])}, {}, options).status();
  };
  EXPECT_EQ(run(3, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(t.run(v.read).value(), 8);
  EXPECT_EQ(run(4, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(t.run(v.read).value(), 9);
  EXPECT_EQ(run(-1, 1).to_string(), "OK");
  EXPECT_EQ(t.run(v.read).value(), 10);
  EXPECT_EQ(run(-1, 2).to_string(), "OK");
  EXPECT_EQ(t.run(v.read).value(), 15);
}

TEST_P(Cluster, AnErrorOnOneTaskEndsTheOther) {
  ClusterTest t({.transport = GetParam()});
  t.on(kTask0);
  Expr stuck = t.add("TestStuck", {});
  t.on(kTask1);
  Expr bad = t.placeholder(DType::kBool);
  std::string assertion = t.add_target("Assert", {bad, t.graph().constant(17)});
  t.open();
  Result<std::vector<Tensor>> out =
      t.session().run({{t.name(bad), Tensor::scalar<bool>(false)}}, {t.name(stuck)}, {assertion});
  EXPECT_EQ(out.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(mentions(out.status(), "17"));
  EXPECT_EQ(t.open_steps(), 0u);
}

TEST_P(Cluster, TheErrorIsThatOfTheTaskWhereItBegan) {
  ClusterTest t({.transport = GetParam()});
  t.on(kTask1);
  Expr bad = t.placeholder(DType::kFloat);
  std::string assertion =
      t.add_target("Assert", {t.add("Less", {bad, t.constant(0)}), t.graph().constant(17)});
  t.graph().builder().context().control_inputs = {t.graph().graph().find(assertion)};
  Expr after = t.add("Identity", {bad});
  t.graph().builder().context().control_inputs.clear();
  t.on(kTask0);
  Expr y = t.add("Add", {after, after});
  t.open();
  for (int i = 0; i < 20; ++i) {
    Status status = t.run(y, {{t.name(bad), Tensor::scalar<float>(1)}}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_FALSE(mentions(status, "waiting for"));
  }
  EXPECT_EQ(t.run(y, {{t.name(bad), Tensor::scalar<float>(-1)}}).value(), -2);
}

// y on task 0 waits for what never comes from task 1.
Expr stuck_sum(ClusterTest& t) {
  t.on(kTask1);
  Expr stuck = t.add("TestStuck", {});
  t.on(kTask0);
  return t.add("Neg", {stuck});
}

TEST_P(Cluster, CancellationEndsAWaitForAnotherTask) {
  ClusterTest t({.transport = GetParam()});
  Expr y = stuck_sum(t);
  t.open();
  int before = stuck_so_far();
  RunOptions options;
  options.cancel = make_ref<CancellationToken>();
  std::thread canceller([&] {
    wait_for_stuck(before + 1);
    options.cancel->cancel(cancelled("the user has gone home"));
  });
  Status status = t.run(y, {}, options).status();
  canceller.join();
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_TRUE(mentions(status, "gone home"));
  EXPECT_EQ(t.open_steps(), 0u);
}

TEST_P(Cluster, TheDeadlineNamesTheTasksThatAreLate) {
  ClusterTest t({.transport = GetParam()});
  Expr y = stuck_sum(t);
  t.open();
  RunOptions options;
  options.timeout_ms = 50;
  Status status = t.run(y, {}, options).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(mentions(status, kTask0));
  EXPECT_TRUE(mentions(status, kTask1));
  t.close();
  EXPECT_EQ(t.open_steps(), 0u);
}

TEST_P(Cluster, ClosingASessionEndsItsSteps) {
  ClusterTest t({.transport = GetParam()});
  Expr y = stuck_sum(t);
  t.open();
  int before = stuck_so_far();
  Status status;
  std::thread runner([&] { status = t.run(y).status(); });
  wait_for_stuck(before + 1);
  ASSERT_TRUE(t.session().close().ok());
  runner.join();
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_EQ(t.open_steps(), 0u);
  EXPECT_EQ(t.registered_graphs(), 0u);
}

TEST_P(Cluster, AStoppedTaskIsUnavailable) {
  ClusterTest t({.transport = GetParam()});
  VariableOnTask1 v(t);
  t.on(kTask0);
  Expr alone = t.constant(2);
  t.open();
  ASSERT_TRUE(t.session().run({}, {}, {v.init}).ok());
  EXPECT_EQ(t.run(v.read).value(), 5);
  ASSERT_TRUE(t.cluster().stop(kTask1).ok());
  Status status = t.run(v.read).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(mentions(status, kTask1));
  EXPECT_FALSE(t.cluster().workers()->alive(kTask1));
  // What does not need it goes on.
  EXPECT_EQ(t.run(alone).value(), 2);
  EXPECT_EQ(t.open_steps(), 0u);
  // A session over all tasks cannot begin, one that leaves the task out can.
  SessionOptions options;
  options.target = str_cat("inprocess://", t.cluster_name());
  EXPECT_EQ(Session::create(Ref<Graph>(&t.graph().graph()), options).status().code(),
            Code::kUnavailable);
  options.device_filters = {"/job:worker/task:0"};
  t.open(options);
  EXPECT_EQ(t.run(alone).value(), 2);
}

TEST_P(Cluster, StoppingATaskEndsRunningSteps) {
  ClusterTest t({.transport = GetParam()});
  Expr y = stuck_sum(t);
  t.open();
  int before = stuck_so_far();
  std::thread stopper([&] {
    wait_for_stuck(before + 1);
    EXPECT_TRUE(t.cluster().stop(kTask1).ok());
  });
  Status status = t.run(y).status();
  stopper.join();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(mentions(status, kTask1));
  EXPECT_EQ(t.open_steps(), 0u);
}

TEST_P(Cluster, ARestartedTaskAbortsOldSessions) {
  ClusterTest t({.transport = GetParam()});
  VariableOnTask1 v(t);
  t.open();
  ASSERT_TRUE(t.session().run({}, {}, {v.init}).ok());
  EXPECT_EQ(t.run(v.read).value(), 5);
  ASSERT_TRUE(t.cluster().restart(kTask1).ok());
  // Where there is a connection, a call may find that it is lost before the next finds a new task.
  Code code = t.run(v.read).status().code();
  if (code == Code::kUnavailable) code = t.run(v.read).status().code();
  EXPECT_EQ(code, Code::kAborted);
  // Also what is new to the session, which would otherwise find an empty variable.
  EXPECT_EQ(t.session().run({}, {}, {v.increment}).status().code(), Code::kAborted);
  t.open();
  EXPECT_FALSE(t.run(v.read).ok());
  ASSERT_TRUE(t.session().run({}, {}, {v.init}).ok());
  EXPECT_EQ(t.run(v.read).value(), 5);
}

TEST_P(Cluster, TracesCoverBothTasks) {
  ClusterTest t({.transport = GetParam()});
  t.on(kTask1);
  Expr x = t.placeholder(DType::kFloat);
  Expr a = t.add("Neg", {x});
  t.on(kTask0);
  Expr y = t.add("Neg", {a});
  t.open();
  RunOptions options;
  options.trace = true;
  RunMetadata metadata;
  auto out =
      t.session().run({{t.name(x), Tensor::scalar<float>(1)}}, {t.name(y)}, {}, options, &metadata);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  std::string devices;
  for (const TraceEvent& event : metadata.events) devices += event.device;
  EXPECT_NE(devices.find(kTask0), std::string::npos);
  EXPECT_NE(devices.find(kTask1), std::string::npos);
}

TEST_P(Cluster, ThreadsRunDifferentSignatures) {
  ClusterTest t({.transport = GetParam(), .cpu_devices = 2});
  constexpr int kThreads = 8;
  t.on(kTask0);
  Expr x = t.placeholder(DType::kFloat);
  std::vector<Expr> sums;
  Expr sum = t.add("Identity", {x});
  for (int i = 0; i < kThreads; ++i) {
    t.on(str_cat("/job:worker/task:", i % 2, "/cpu:", i / 2 % 2));
    sum = t.add("Add", {sum, x});
    sums.push_back(sum);
  }
  t.open();
  std::vector<std::string> names;
  for (Expr e : sums) names.push_back(t.name(e));
  std::string x_name = t.name(x);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 25; ++round) {
        auto v = static_cast<float>(i * 100 + round);
        auto out = t.session().run({{x_name, Tensor::scalar<float>(v)}},
                                   {names[static_cast<size_t>(i)], names[0]});
        ASSERT_TRUE(out.ok()) << out.status().to_string();
        EXPECT_EQ((*out)[0].item<float>(), v * static_cast<float>(i + 2));
        EXPECT_EQ((*out)[1].item<float>(), v * 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(t.open_steps(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Direct, Cluster, testing::Values(InProcessCluster::Transport::kDirect));
INSTANTIATE_TEST_SUITE_P(SameHost, Cluster,
                         testing::Values(InProcessCluster::Transport::kSameHost));
INSTANTIATE_TEST_SUITE_P(Grpc, Cluster, testing::Values(InProcessCluster::Transport::kGrpc));

}  // namespace
}  // namespace millrace
