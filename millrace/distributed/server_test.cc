// test-labels: threads
#include "millrace/distributed/server.h"

#include <gtest/gtest.h>

#include <thread>

#include "millrace/base/file_testing.h"
#include "millrace/distributed/call_group.h"
#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/distributed/network.h"
#include "millrace/distributed/partial_keys.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "proto/node_def.pb.h"

namespace millrace {
namespace {

Server::Options options_of(std::string_view cluster, std::string job, int task) {
  return {.cluster = ClusterSpec::parse(cluster).value(), .job = std::move(job), .task = task};
}

std::unique_ptr<Server> start(std::string_view cluster, std::string job, int task) {
  return Server::start(options_of(cluster, std::move(job), task)).value();
}

// What becomes of a call to a task on another machine that is not there.
const Code kNobody = grpc_available().ok() ? Code::kUnavailable : Code::kUnimplemented;

constexpr const char* kTwo = "worker|a:1;b:2";

TEST(Server, SessionsRunOnTheTasksOfThisProcess) {
  const auto first = start(kTwo, "worker", 0);
  auto second = start(kTwo, "worker", 1);
  ClusterTest t;
  t.on(kTask1);
  Expr a = t.add("Add", {t.constant(1), t.constant(2)});
  t.on(kTask0);
  Expr b = t.add("Mul", {a, t.constant(5)});
  for (const char* target : {"grpc://a:1", "grpc://b:2"}) {
    t.open({.target = target});
    EXPECT_EQ(t.session().list_devices().size(), 2u);
    Result<float> y = t.run(b);
    ASSERT_TRUE(y.ok()) << y.status().to_string();
    EXPECT_EQ(*y, 15);
  }
  // Those that are open go on; nobody finds it any more.
  second.reset();
  EXPECT_TRUE(t.run(b).ok());
  t.close();
  const auto open = [&](const char* target, std::vector<std::string> filters) {
    return Session::create(Ref<Graph>(&t.graph().graph()),
                           {.target = target, .device_filters = std::move(filters)});
  };
  EXPECT_EQ(open("grpc://a:1", {}).status().code(), kNobody);
  EXPECT_TRUE(open("grpc://a:1", {"/job:worker/task:0"}).ok());
  EXPECT_EQ(open("grpc://b:2", {}).status().code(), kNobody);
  EXPECT_EQ(open("grpc", {}).status().code(), kNobody);
}

TEST(Server, RefusesWhatIsNoServer) {
  const auto code = [](const Server::Options& options) {
    return Server::start(options).status().code();
  };
  EXPECT_EQ(code(options_of("w|a", "w", 0)), Code::kInvalidArgument);
  EXPECT_EQ(code(options_of("w|a:", "w", 0)), Code::kInvalidArgument);
  EXPECT_EQ(code(options_of("w|a:123456", "w", 0)), Code::kInvalidArgument);
  EXPECT_EQ(code(options_of("w|a:1", "w", 1)), Code::kNotFound);
  Server::Options none = options_of("w|a:1", "w", 0);
  none.cpu_devices = 0;
  EXPECT_EQ(code(none), Code::kInvalidArgument);
  const auto server = start("w|a:1", "w", 0);
  EXPECT_EQ(code(options_of("v|a:1", "v", 0)), Code::kUnknown);
}

TEST(Server, APortOf0BecomesAFreeOne) {
  const auto server = start("w|localhost:0", "w", 0);
  ASSERT_TRUE(server->address().starts_with("localhost:"));
  ASSERT_FALSE(server->address().ends_with(":0"));
  const std::string cluster = str_cat("w|", server->address());
  EXPECT_EQ(Server::start(options_of(cluster, "w", 0)).status().code(), Code::kUnknown);
  ClusterTest t;
  Expr y = t.add("Add", {t.constant(1), t.constant(2)});
  t.open({.target = str_cat("grpc://", server->address())});
  EXPECT_EQ(t.run(y).value(), 3);
  EXPECT_EQ(Server::start(options_of("w|localhost:99999", "w", 0)).status().code(), Code::kUnknown);
}

TEST(Server, LimitsTheCallsThatWait) {
  setenv("MILLRACE_CLUSTER_MAX_CALLS_PER_CLIENT", "2", 1);
  const auto server = start("w|localhost:0", "w", 0);
  unsetenv("MILLRACE_CLUSTER_MAX_CALLS_PER_CLIENT");
  Network network;
  const Ref<WorkerInterface> worker = make_remote_worker(network.connect(server->address(), "it"));
  const auto recv = [&](int position, const Ref<CancellationToken>& cancel) {
    const Ref<CallGroup> answer = make_ref<CallGroup>("recv");
    answer->expect("it");
    worker->recv_tensor({.step_id = 7, .key = fetch_key(position)}, cancel,
                        [answer](Status status, const Value&) { answer->answer("it", status); });
    return answer;
  };
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  const Ref<CallGroup> first = recv(0, cancel), second = recv(1, cancel);
  // Calls may overtake each other: those that wait are there.
  const auto waiting = [&] {
    const WorkerActivity told = Server::activity(str_cat("grpc://", server->address())).value();
    return told.steps.empty() ? 0 : told.steps[0].waits_for.size();
  };
  while (waiting() < 2) std::this_thread::yield();
  const Status full = recv(2, cancel)->wait(60'000);
  EXPECT_EQ(full.code(), Code::kResourceExhausted) << full.to_string();
  cancel->cancel(aborted("enough"));
  EXPECT_EQ(first->wait(60'000).code(), Code::kAborted);
  EXPECT_EQ(second->wait(60'000).code(), Code::kAborted);
}

TEST(Server, TellsOfSessionsThatBringTheirCluster) {
  const auto server = start("w|localhost:0", "w", 0);
  const std::string target = str_cat("grpc://", server->address());
  ClusterTest t;
  t.on("/job:brought/task:0");
  const Expr y = t.add("Add", {t.placeholder(DType::kFloat), t.constant(2)});
  t.open({.target = target, .cluster = {{"brought", 0, server->address()}}});
  EXPECT_EQ(t.run(y, {{"Placeholder:0", Tensor::scalar(1.0F)}}).value(), 3);
  WorkerActivity told = Server::activity(target).value();
  ASSERT_EQ(told.sessions.size(), 1u);
  EXPECT_EQ(told.sessions[0].graphs, 1);
  EXPECT_EQ(told.steps_ended, 1);
  const auto fed = [&] {
    int64_t bytes = 0;
    for (const WorkerActivity::Transfer& transfer : told.transfers) {
      if (transfer.kind == "feed") bytes += transfer.received_bytes;
    }
    return bytes;
  };
  EXPECT_EQ(fed(), 4);
  t.close();
  // What was counted stays. Tasks are told of an end without waiting for it.
  do {
    told = Server::activity(target).value();
  } while (!told.sessions.empty());
  EXPECT_EQ(told.steps_ended, 1);
  EXPECT_EQ(fed(), 4);
}

TEST(Server, ResetsTheDefaultContainerByTheNameOfItsJob) {
  const auto server = start("w|a:1", "w", 0);
  ClusterTest t;
  Expr v = t.add("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape::scalar()}});
  const std::string assign =
      t.add_target("AssignVariableOp", {v, t.constant(7)}, {{"dtype", DType::kFloat}});
  Expr read = t.add("ReadVariableOp", {v}, {{"dtype", DType::kFloat}});
  t.open({.target = "grpc://a:1"});
  ASSERT_TRUE(t.session().run({}, {}, {assign}).ok());
  const std::vector<std::string> other = {"v"}, own = {"w"};
  ASSERT_TRUE(Server::reset("grpc://a:1", other).ok());
  t.open({.target = "grpc://a:1"});
  EXPECT_EQ(t.run(read).value(), 7);
  ASSERT_TRUE(Server::reset("grpc://a:1", own).ok());
  EXPECT_FALSE(t.run(read).ok());
  EXPECT_EQ(Server::reset("grpc://elsewhere:1", {}).code(), kNobody);
}

// The sum of one member, which a session without a cluster asks for.
Result<float> sum_alone() {
  ClusterTest t;
  Expr sum = t.add("CollectiveReduce", {t.constant(3)},
                   {{"group_size", 1},
                    {"group_key", 1},
                    {"instance_key", 1},
                    {"merge_op", "Add"},
                    {"final_op", "Id"},
                    {"subdiv_offsets", std::vector<int64_t>{0}},
                    {"timeout_seconds", 30.0F}});
  t.open({});
  return t.run(sum);
}

TEST(Server, SessionsWithoutAClusterComputeTogetherByTheLastServer) {
  const auto old = start(kTwo, "worker", 1);  // its group would form on a task that never comes
  const auto first = start("worker|c:3;d:4", "worker", 0);
  const auto second = start("worker|c:3;d:4", "worker", 1);
  const Result<float> sum = sum_alone();
  ASSERT_TRUE(sum.ok()) << sum.status().to_string();
  EXPECT_EQ(*sum, 3);
}

TEST(Server, WithdrawsItsOwnCollectivesAlone) {
  const auto first = start("worker|a:1", "worker", 0);
  start("worker|b:2", "worker", 0);  // another of the name, which ends here
  const Result<float> sum = sum_alone();
  ASSERT_TRUE(sum.ok()) << sum.status().to_string();
  EXPECT_EQ(*sum, 3);
}

TEST(Server, SaysWhichFilesAreReached) {
  TemporaryDirectory open;
  Server::Options options = options_of("w|a:1", "w", 0);
  options.files = FileAccess::only({.read = {open.path()}, .write = {}}).value();
  const auto server = Server::start(options);
  ASSERT_TRUE(server.ok());
  ClusterTest t;
  Expr path = t.placeholder(DType::kString);
  Expr read = t.add("ReadFile", {path});
  Session& session = t.open({.target = "grpc://a:1"});
  const auto code = [&](const std::string& file) {
    return session.run({{t.name(path), Tensor::scalar<std::string>(file)}}, {t.name(read)})
        .status()
        .code();
  };
  EXPECT_EQ(code(open / "absent"), Code::kNotFound);
  EXPECT_EQ(code("/absent"), Code::kPermissionDenied);
  const SessionOptions wider = {.target = "grpc://a:1", .files = FileAccess::all()};
  EXPECT_EQ(Session::create(Ref<Graph>(&t.graph().graph()), wider).status().code(),
            Code::kInvalidArgument);
}

TEST(Server, WhatPeersSendIsNotPrinted) {
  const auto server = start("w|a:1", "w", 0);
  testing::internal::CaptureStderr();
  tensorflow::NodeDef node;
  EXPECT_FALSE(node.ParseFromString("\x0a\x01\xff"));  // a name that is no UTF-8
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Server, ComesAndGoesWhileSessionsAreMade) {
  const auto first = start(kTwo, "worker", 0);
  ClusterTest t;
  t.on(kTask0);
  Expr y = t.add("Add", {t.constant(1), t.constant(2)});
  const std::string name = t.name(y);
  // Looking for a machine that is not there takes gRPC a while.
  const int rounds = grpc_available().ok() ? 5 : 50;
  std::thread other([&] {
    for (int i = 0; i < rounds; ++i) start(kTwo, "worker", 1);
  });
  for (int i = 0; i < rounds; ++i) {
    Result<std::unique_ptr<Session>> session =
        Session::create(Ref<Graph>(&t.graph().graph()), {.target = "grpc://a:1"});
    EXPECT_TRUE(!session.ok() || (*session)->run({}, {name}).ok());
  }
  other.join();
}

}  // namespace
}  // namespace millrace
