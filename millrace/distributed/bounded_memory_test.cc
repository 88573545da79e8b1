// What many signatures and many lost sessions leave behind: nothing that grows.
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>

#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/master_service.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/master.pb.h"

namespace millrace {
namespace {

int graphs_on(ClusterTest& t, std::string_view task) {
  return t.cluster().worker(task).value()->num_graphs();
}

TEST(BoundedMemory, TenThousandSignaturesAreNotAllKept) {
  ClusterTest t;
  t.on(kTask1);
  const Expr x = t.placeholder(DType::kFloat);
  std::vector<std::string> names;
  for (int i = 0; i < 10'000; ++i) names.push_back(t.name(t.add("Neg", {x})));
  SessionOptions options;
  options.max_plan_bytes = int64_t{4} << 20;
  Session& session = t.open(options);
  const Session::Feeds feeds = {{t.name(x), Tensor::scalar(2.0F)}};
  int most = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto y = session.run(feeds, {names[i]});
    ASSERT_TRUE(y.ok()) << y.status().to_string();
    if (i % 100 == 0) most = std::max(most, graphs_on(t, kTask1));
  }
  // Each is counted with 16 KiB at least; those that were dropped were deregistered.
  EXPECT_LE(most, 4 * 64 + 8);
  EXPECT_GT(graphs_on(t, kTask1), 8);
  t.close();
  EXPECT_EQ(t.registered_graphs(), 0u);
}

// The same for a client of TensorFlow's, whose master is in the server.
TEST(BoundedMemory, TenThousandSignaturesOfAClientAreNotAllKept) {
  ClusterTest t;
  const auto service = MasterService::create(
      {.target = str_cat("inprocess://", t.cluster_name()), .max_plan_bytes = int64_t{4} << 20});
  ASSERT_TRUE(service.ok()) << service.status().to_string();
  const auto call = [&](const char* method, const google::protobuf::MessageLite& request) {
    std::promise<std::pair<Status, std::string>> answer;
    (*service)->handle(str_cat("/tensorflow.MasterService/", method),
                       {.fields = request.SerializeAsString(), .parts = {}},
                       make_ref<CancellationToken>(), [&](Status status, Message message) {
                         answer.set_value({std::move(status), std::move(message.fields)});
                       });
    auto [status, bytes] = answer.get_future().get();
    EXPECT_TRUE(status.ok()) << status.to_string();
    return bytes;
  };
  tensorflow::CreateSessionRequest create;
  for (int i = 0; i < 10'000; ++i) {
    tensorflow::NodeDef& node = *create.mutable_graph_def()->add_node();
    node.set_name(str_cat("n", i));
    node.set_op("Placeholder");
    node.set_device(std::string(kTask1));
    (*node.mutable_attr())["dtype"].set_type(tensorflow::DT_FLOAT);
    tensorflow::NodeDef& neg = *create.mutable_graph_def()->add_node();
    neg.set_name(str_cat("m", i));
    neg.set_op("Neg");
    neg.set_device(std::string(kTask1));
    neg.add_input(node.name());
    (*neg.mutable_attr())["T"].set_type(tensorflow::DT_FLOAT);
  }
  tensorflow::CreateSessionResponse created;
  ASSERT_TRUE(created.ParseFromString(call("CreateSession", create)));
  int most = 0;
  for (int i = 0; i < 10'000; ++i) {
    tensorflow::RunStepRequest step;
    step.set_session_handle(created.session_handle());
    step.add_fetch(str_cat("m", i, ":0"));
    tensorflow::NamedTensorProto& feed = *step.add_feed();
    feed.set_name(str_cat("n", i, ":0"));
    MR_CHECK_OK(tensor_to_proto(Tensor::scalar(2.0F), *feed.mutable_tensor()));
    call("RunStep", step);
    if (i % 100 == 0) most = std::max(most, graphs_on(t, kTask1));
  }
  EXPECT_LE(most, 4 * 64 + 8);
  (*service)->shut_down();
  EXPECT_EQ(t.registered_graphs(), 0u);
}

TEST(BoundedMemory, ATaskHoldsNoMoreSessionsAndGraphsThanItMay) {
  setenv("MILLRACE_CLUSTER_MAX_SESSIONS", "3", 1);
  setenv("MILLRACE_CLUSTER_MAX_GRAPH_MB", "1", 1);
  ClusterTest t;
  unsetenv("MILLRACE_CLUSTER_MAX_SESSIONS");
  unsetenv("MILLRACE_CLUSTER_MAX_GRAPH_MB");
  t.on(kTask1);
  const Expr small = t.add("Neg", {t.constant(1)});
  Expr large = t.placeholder(DType::kFloat);
  for (int i = 0; i < 1000; ++i) large = t.add("Neg", {large});
  SessionOptions options = {.target = str_cat("inprocess://", t.cluster_name())};
  options.disabled_passes = {"fuse_elementwise"};  // the large graph would be a small one
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 4; ++i) {
    sessions.push_back(Session::create(Ref<Graph>(&t.graph().graph()), options).value());
    const Status status = sessions.back()->run({}, {t.name(small)}).status();
    EXPECT_EQ(status.code(), i < 3 ? Code::kOk : Code::kResourceExhausted) << status.to_string();
    if (i == 3) {
      EXPECT_NE(status.message().find("MILLRACE_CLUSTER_MAX_SESSIONS"), std::string_view::npos);
    }
  }
  const Session::Feeds feeds = {{"Placeholder:0", Tensor::scalar(2.0F)}};
  const Status full = sessions[0]->run(feeds, {t.name(large)}).status();
  EXPECT_EQ(full.code(), Code::kResourceExhausted) << full.to_string();
  EXPECT_NE(full.message().find("MILLRACE_CLUSTER_MAX_GRAPH_MB"), std::string_view::npos);
  // What was refused is not counted, and what is closed makes room.
  EXPECT_TRUE(sessions[0]->run({}, {t.name(small)}).ok());
  sessions.clear();
  EXPECT_EQ(t.registered_graphs(), 0u);
  EXPECT_TRUE(Session::create(Ref<Graph>(&t.graph().graph()), options)
                  .value()
                  ->run({}, {t.name(small)})
                  .ok());
}

TEST(BoundedMemory, AClientLeavesRoomForOthers) {
  setenv("MILLRACE_CLUSTER_MAX_SESSIONS", "4", 1);
  ClusterTest t({.transport = InProcessCluster::Transport::kSameHost});
  unsetenv("MILLRACE_CLUSTER_MAX_SESSIONS");
  t.on(kTask1);
  const std::string small = t.name(t.add("Neg", {t.constant(1)}));
  const SessionOptions options = {.target = str_cat("inprocess://", t.cluster_name())};
  const auto open = [&](std::unique_ptr<Session>& session) {
    session = Session::create(Ref<Graph>(&t.graph().graph()), options).value();
    return session->run({}, {small}).status();
  };
  std::unique_ptr<Session> first, second, third;
  EXPECT_TRUE(open(first).ok());
  EXPECT_TRUE(open(second).ok());
  const Status full = open(third);
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_NE(full.message().find("of process "), std::string_view::npos) << full.to_string();
  EXPECT_NE(full.message().find("MILLRACE_CLUSTER_MAX_SESSIONS_PER_CLIENT"),
            std::string_view::npos);
  EXPECT_TRUE(first->run({}, {small}).ok());
  // Others have room.
  KeepSessionRequest other = {
      .session = "other", .lease_ms = 1000, .over_steps = {}, .over_graphs = {}};
  other.client = "another process";
  Status kept = internal("not asked");
  t.cluster().worker(kTask1).value()->keep_session(other, [&](Status s) { kept = std::move(s); });
  EXPECT_TRUE(kept.ok()) << kept.to_string();
}

TEST(BoundedMemory, AThousandSessionsThatWereLostLeaveNothing) {
  const Ref<ManualTimer> tasks = make_ref<ManualTimer>(), masters = make_ref<ManualTimer>();
  setenv("MILLRACE_CLUSTER_MAX_SESSIONS_PER_CLIENT", "1024", 1);
  ClusterTest t({.transport = InProcessCluster::Transport::kSameHost,
                 .worker_timer = tasks,
                 .master_timer = masters});
  unsetenv("MILLRACE_CLUSTER_MAX_SESSIONS_PER_CLIENT");
  t.on(kTask1);
  const AttrMap types = {{"component_types", std::vector<DType>{DType::kFloat}}};
  const Expr queue = t.add("FIFOQueueV2", {}, types);  // the session's own
  const Expr size = t.add("QueueSizeV2", {queue});
  const SessionOptions options = {.target = str_cat("inprocess://", t.cluster_name())};
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 1000; ++i) {
    auto session = Session::create(Ref<Graph>(&t.graph().graph()), options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    ASSERT_TRUE((*session)->run({}, {t.name(size)}).ok());
    sessions.push_back(*std::move(session));
  }
  const Ref<Worker> worker = t.cluster().worker(kTask1).value();
  EXPECT_EQ(worker->activity(0).sessions.size(), 1000u);
  EXPECT_EQ(worker->num_graphs(), 1000);
  // Their masters' time stands still: as far as the tasks can tell, they were killed. A sign of
  // life that is still under way keeps its session from when it arrives: for another lease.
  const auto kept = [&](std::string_view task) {
    return !t.cluster().worker(task).value()->activity(0).sessions.empty();
  };
  for (int i = 0; i < 10 && (i == 0 || kept(kTask0) || kept(kTask1)); ++i) {
    tasks->advance(lease_ms_for(lost_after_ms()) * 1'000'000);
  }
  for (const std::string_view task : {kTask0, kTask1}) {
    const WorkerActivity left = t.cluster().worker(task).value()->activity(0);
    EXPECT_TRUE(left.sessions.empty());
    EXPECT_TRUE(left.steps.empty());
    EXPECT_EQ(graphs_on(t, task), 0);
  }
}

}  // namespace
}  // namespace millrace
