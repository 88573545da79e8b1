// test-labels: threads
#include "millrace/distributed/master_service.h"

#include <google/protobuf/stubs/common.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <future>
#include <random>
#include <thread>

#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/server.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/master.pb.h"

namespace millrace {
namespace {

using tensorflow::CallableOptions;
using tensorflow::CloseSessionRequest;
using tensorflow::CloseSessionResponse;
using tensorflow::CreateSessionRequest;
using tensorflow::CreateSessionResponse;
using tensorflow::ExtendSessionRequest;
using tensorflow::ExtendSessionResponse;
using tensorflow::ListDevicesRequest;
using tensorflow::ListDevicesResponse;
using tensorflow::MakeCallableRequest;
using tensorflow::MakeCallableResponse;
using tensorflow::PartialRunSetupRequest;
using tensorflow::PartialRunSetupResponse;
using tensorflow::ReleaseCallableRequest;
using tensorflow::ReleaseCallableResponse;
using tensorflow::ResetRequest;
using tensorflow::ResetResponse;
using tensorflow::RunCallableRequest;
using tensorflow::RunCallableResponse;
using tensorflow::RunStepRequest;
using tensorflow::RunStepResponse;

// y = x * 2 on whichever device, z a string, v a variable, stuck a float that never comes.
constexpr const char* kGraph = R"(
  node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
  node { name: "two" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 2 } } } }
  node { name: "y" op: "Mul" input: "x" input: "two" attr { key: "T" value { type: DT_FLOAT } } }
  node { name: "z" op: "Const" attr { key: "dtype" value { type: DT_STRING } }
         attr { key: "value" value { tensor { dtype: DT_STRING tensor_shape {} string_val: "text" } } } }
  node { name: "v" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "shape" value { shape {} } } attr { key: "shared_name" value { s: "v" } } }
  node { name: "set" op: "AssignVariableOp" input: "v" input: "x"
         attr { key: "dtype" value { type: DT_FLOAT } } }
  node { name: "add" op: "AssignAddVariableOp" input: "v" input: "two"
         attr { key: "dtype" value { type: DT_FLOAT } } }
  node { name: "get" op: "ReadVariableOp" input: "v" attr { key: "dtype" value { type: DT_FLOAT } } }
  node { name: "stuck" op: "TestStuck" }
)";

// One more node, which depends on those.
constexpr const char* kMore = R"(
  node { name: "more" op: "Neg" input: "y" attr { key: "T" value { type: DT_FLOAT } } }
)";

tensorflow::GraphDef graph_of(const std::string& text) {
  tensorflow::GraphDef def;
  MR_CHECK(google::protobuf::TextFormat::ParseFromString(text, &def));
  return def;
}

// What a call gives in the end.
template <class Response>
struct Answer {
  Status status;
  Response response;
};

template <class Request>
struct ResponseOf;
#define MR_ANSWERED(name)                         \
  template <>                                     \
  struct ResponseOf<name##Request> {              \
    using Type = name##Response;                  \
    static constexpr const char* kMethod = #name; \
  };
MR_ANSWERED(CreateSession)
MR_ANSWERED(ExtendSession)
MR_ANSWERED(PartialRunSetup)
MR_ANSWERED(RunStep)
MR_ANSWERED(CloseSession)
MR_ANSWERED(ListDevices)
MR_ANSWERED(Reset)
MR_ANSWERED(MakeCallable)
MR_ANSWERED(RunCallable)
MR_ANSWERED(ReleaseCallable)
#undef MR_ANSWERED

std::future<std::pair<Status, std::string>> start_bytes(
    CallHandler& handler, std::string_view method, std::string bytes,
    Ref<CancellationToken> cancel = make_ref<CancellationToken>()) {
  auto promise = std::make_shared<std::promise<std::pair<Status, std::string>>>();
  handler.handle(method, {.fields = std::move(bytes)}, std::move(cancel),
                 [promise](Status status, Message message) {
                   EXPECT_TRUE(message.parts.empty());
                   promise->set_value({std::move(status), std::move(message.fields)});
                 });
  return promise->get_future();
}

// A service over a server that has two tasks, both of this process.
class MasterServiceTest : public testing::Test {
 protected:
  static constexpr const char* kTarget = "grpc://master-test:1";

  void SetUp() override {
    Server::Options options;
    options.cluster = ClusterSpec::parse("worker|master-test:1,ps|master-test:2").value();
    for (const char* job : {"worker", "ps"}) {
      options.job = job;
      Result<std::unique_ptr<Server>> server = Server::start(options);
      ASSERT_TRUE(server.ok()) << server.status().to_string();
      servers_.push_back(*std::move(server));
    }
    use({});
  }
  void TearDown() override { service_->shut_down(); }

  void use(MasterServiceOptions options) {
    if (service_) service_->shut_down();
    if (options.target.empty()) options.target = kTarget;
    options.task = "/job:worker/replica:0/task:0";
    Result<Ref<MasterService>> service = MasterService::create(std::move(options));
    ASSERT_TRUE(service.ok()) << service.status().to_string();
    service_ = *std::move(service);
  }

  template <class Request>
  auto start(const Request& request,
             Ref<CancellationToken> cancel = make_ref<CancellationToken>()) {
    return start_bytes(*service_,
                       str_cat("/tensorflow.MasterService/", ResponseOf<Request>::kMethod),
                       request.SerializeAsString(), std::move(cancel));
  }
  template <class Request>
  static Answer<typename ResponseOf<Request>::Type> finish(
      std::future<std::pair<Status, std::string>>& future) {
    auto [status, bytes] = future.get();
    Answer<typename ResponseOf<Request>::Type> answer{std::move(status), {}};
    EXPECT_TRUE(answer.response.ParseFromString(bytes));
    return answer;
  }
  template <class Request>
  auto call(const Request& request) {
    auto future = start(request);
    return finish<Request>(future);
  }

  Answer<CreateSessionResponse> create(const std::string& graph, const std::string& config = "") {
    CreateSessionRequest request;
    *request.mutable_graph_def() = graph_of(graph);
    MR_CHECK(google::protobuf::TextFormat::ParseFromString(config, request.mutable_config()));
    return call(request);
  }
  std::string open(const std::string& graph = kGraph, const std::string& config = "") {
    Answer<CreateSessionResponse> answer = create(graph, config);
    EXPECT_TRUE(answer.status.ok()) << answer.status.to_string();
    EXPECT_EQ(answer.response.graph_version(), 0);
    return answer.response.session_handle();
  }
  Answer<ExtendSessionResponse> extend(const std::string& handle, const std::string& graph,
                                       int64_t version) {
    ExtendSessionRequest request;
    request.set_session_handle(handle);
    *request.mutable_graph_def() = graph_of(graph);
    request.set_current_graph_version(version);
    return call(request);
  }
  static RunStepRequest step(const std::string& handle, const std::vector<std::string>& fetches,
                             const std::vector<std::string>& targets = {}, float x = 0) {
    RunStepRequest request;
    request.set_session_handle(handle);
    for (const std::string& name : fetches) request.add_fetch(name);
    for (const std::string& name : targets) request.add_target(name);
    if (x != 0) feed(request, "x:0", x);
    return request;
  }
  static void feed(RunStepRequest& request, const std::string& name, float value) {
    tensorflow::NamedTensorProto& feed = *request.add_feed();
    feed.set_name(name);
    MR_CHECK_OK(tensor_to_proto(Tensor::scalar<float>(value), *feed.mutable_tensor()));
  }
  Status run_code(const RunStepRequest& request) { return call(request).status; }
  static float float_of(const tensorflow::TensorProto& proto) {
    EXPECT_EQ(proto.tensor_content().size(), sizeof(float));
    return tensor_from_proto(proto).value().item<float>();
  }
  Status close(const std::string& handle) {
    CloseSessionRequest request;
    request.set_session_handle(handle);
    return call(request).status;
  }

  ClusterTest cluster_;  // has the op TestStuck registered
  std::vector<std::unique_ptr<Server>> servers_;
  Ref<MasterService> service_;
};

TEST_F(MasterServiceTest, CreatesRunsExtendsAndCloses) {
  const std::string handle = open("");
  EXPECT_EQ(handle.size(), 16u);
  EXPECT_EQ(handle.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(handle, open(""));
  Answer<ExtendSessionResponse> extended = extend(handle, kGraph, 0);
  ASSERT_TRUE(extended.status.ok()) << extended.status.to_string();
  EXPECT_EQ(extended.response.new_graph_version(), 1);
  EXPECT_EQ(extend(handle, kMore, 1).response.new_graph_version(), 2);

  // Names as asked, each once.
  RunStepRequest request = step(handle, {"y:0", "more:0", "y:0", "y", "z:0"}, {}, 3);
  Answer<RunStepResponse> ran = call(request);
  ASSERT_TRUE(ran.status.ok()) << ran.status.to_string();
  ASSERT_EQ(ran.response.tensor_size(), 4);
  EXPECT_EQ(ran.response.tensor(0).name(), "y:0");
  EXPECT_EQ(float_of(ran.response.tensor(0).tensor()), 6);
  EXPECT_EQ(ran.response.tensor(1).name(), "more:0");
  EXPECT_EQ(float_of(ran.response.tensor(1).tensor()), -6);
  EXPECT_EQ(ran.response.tensor(2).name(), "y");
  EXPECT_EQ(ran.response.tensor(3).tensor().tensor_content(), "\4text");
  EXPECT_FALSE(ran.response.has_metadata());
  EXPECT_EQ(service_->sessions(), 2u);
  EXPECT_TRUE(close(handle).ok());
  EXPECT_EQ(service_->sessions(), 1u);
  EXPECT_EQ(close(handle).code(), Code::kAborted);
  EXPECT_EQ(run_code(request).code(), Code::kAborted);
  EXPECT_EQ(extend(handle, kMore, 2).status.code(), Code::kAborted);
}

TEST_F(MasterServiceTest, RunsOverTasksThatCallsReach) {
  use({.target = str_cat("inprocess://", cluster_.cluster_name())});
  const std::string handle = open(R"(
    node { name: "x" op: "Placeholder" device: "/job:worker/task:0"
           attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "y" op: "Neg" input: "x" device: "/job:worker/task:1"
           attr { key: "T" value { type: DT_FLOAT } } })");
  RunStepRequest request = step(handle, {"y:0"}, {}, 3);
  request.mutable_options()->set_trace_level(tensorflow::RunOptions::FULL_TRACE);
  Answer<RunStepResponse> ran = call(request);
  ASSERT_TRUE(ran.status.ok()) << ran.status.to_string();
  EXPECT_EQ(float_of(ran.response.tensor(0).tensor()), -3);
  EXPECT_GE(ran.response.metadata().step_stats().dev_stats_size(), 1);
}

TEST_F(MasterServiceTest, SaysWhatIsWrongWithAGraph) {
  EXPECT_EQ(create(R"(node { name: "a" op: "Neg" input: "b" })").status.code(),
            Code::kInvalidArgument);
  EXPECT_EQ(service_->sessions(), 0u);
  const std::string handle = open();
  // Nothing of a wrong message is taken: not its first node, not its function.
  const std::string function = R"(
    library { function { signature { name: "F" input_arg { name: "a" type: DT_FLOAT }
                                     output_arg { name: "b" type: DT_FLOAT } }
              node_def { name: "n" op: "Neg" input: "a" attr { key: "T" value { type: DT_FLOAT } } }
              ret { key: "b" value: "n:y:0" } } })";
  EXPECT_EQ(
      extend(handle, str_cat(kMore, R"(node { name: "y" op: "NoOp" })", function), 0).status.code(),
      Code::kInvalidArgument);
  EXPECT_EQ(extend(handle, kMore, 1).status.code(), Code::kAborted);
  EXPECT_EQ(extend(handle, kMore, 0).response.new_graph_version(), 1);
  EXPECT_EQ(extend(handle, kMore, 0).status.code(), Code::kAborted);
  EXPECT_EQ(extend(handle, kMore, 1).status.code(), Code::kInvalidArgument);

  // Libraries come whole every time: what is there already must be the same.
  const std::string call_it = R"(node { name: "f" op: "F" input: "y" })";
  EXPECT_EQ(extend(handle, str_cat(call_it, function), 1).response.new_graph_version(), 2);
  EXPECT_EQ(extend(handle, function, 2).response.new_graph_version(), 3);
  std::string other = function;
  other.replace(other.find("\"Neg\""), 5, "\"Abs\"");
  EXPECT_EQ(extend(handle, other, 3).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(float_of(call(step(handle, {"f:0"}, {}, 3)).response.tensor(0).tensor()), -6);
}

TEST_F(MasterServiceTest, ErrorsOfRunsGoWhereTheClientWantsThem) {
  const std::string handle = open();
  RunStepRequest request = step(handle, {"none:0"});
  EXPECT_EQ(run_code(request).code(), Code::kNotFound);
  request.set_store_errors_in_response_body(true);
  Answer<RunStepResponse> body = call(request);
  EXPECT_TRUE(body.status.ok());
  EXPECT_EQ(body.response.status_code(), tensorflow::error::NOT_FOUND);
  EXPECT_NE(body.response.status_error_message().find("none"), std::string::npos);
  EXPECT_EQ(body.response.tensor_size(), 0);
  EXPECT_EQ(call(step(handle, {"y:0"}, {}, 1)).response.status_code(), tensorflow::error::OK);

  // A long text is cut between characters where it goes as a status.
  std::string name;
  while (name.size() < 5000) name += "\u20ac";
  for (int shift = 0; shift < 3; ++shift) {
    const Status status = run_code(step(handle, {str_cat(std::string(shift, 'x'), name)}));
    EXPECT_LE(status.message().size(), 3072u);
    EXPECT_GT(status.message().size(), 3000u);
    const std::string_view last = status.message().substr(status.message().size() - 3);
    EXPECT_EQ(last, "\u20ac");
  }
  request.set_fetch(0, name);
  EXPECT_GT(call(request).response.status_error_message().size(), 5000u);

  // Errors quote values, which may be any bytes.
  const std::string bytes = open(R"(
    node { name: "s" op: "Placeholder" attr { key: "dtype" value { type: DT_STRING } } }
    node { name: "n" op: "StringToNumber" input: "s" })");
  RunStepRequest parse = step(bytes, {"n:0"});
  tensorflow::NamedTensorProto& fed = *parse.add_feed();
  fed.set_name("s:0");
  MR_CHECK_OK(tensor_to_proto(Tensor::scalar<std::string>("\xff\xfe"), *fed.mutable_tensor()));
  EXPECT_EQ(run_code(parse).code(), Code::kInvalidArgument);
  parse.set_store_errors_in_response_body(true);
  EXPECT_EQ(call(parse).response.status_code(), tensorflow::error::INVALID_ARGUMENT);
}

TEST_F(MasterServiceTest, RunsEndAtTheirDeadlineAndWhenTheCallIsCancelled) {
  const std::string handle = open();
  RunStepRequest request = step(handle, {"stuck:0"});
  request.mutable_options()->set_timeout_in_ms(20);
  EXPECT_EQ(run_code(request).code(), Code::kDeadlineExceeded);
  request.clear_options();
  const int before = stuck_so_far();
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  auto future = start(request, cancel);
  wait_for_stuck(before + 1);
  cancel->cancel(cancelled("the client has left"));
  EXPECT_EQ(finish<RunStepRequest>(future).status.code(), Code::kCancelled);
  // A session's own deadline counts where the run has none.
  const std::string short_one = open(kGraph, "operation_timeout_in_ms: 20");
  EXPECT_EQ(run_code(step(short_one, {"stuck:0"})).code(), Code::kDeadlineExceeded);
}

TEST_F(MasterServiceTest, ClosingCancelsWhatRunsAndLeavesTheState) {
  const std::string first = open();
  EXPECT_TRUE(run_code(step(first, {}, {"set"}, 7)).ok());
  const int before = stuck_so_far();
  auto future = start(step(first, {"stuck:0"}));
  wait_for_stuck(before + 1);
  EXPECT_TRUE(close(first).ok());
  EXPECT_EQ(finish<RunStepRequest>(future).status.code(), Code::kCancelled);
  const std::string second = open();
  EXPECT_EQ(float_of(call(step(second, {"get:0"})).response.tensor(0).tensor()), 7);
}

TEST_F(MasterServiceTest, ResetClosesSessionsAndDropsContainers) {
  const auto graph_on = [](std::string_view job) {
    std::string graph = kGraph;
    const std::string place = str_cat("name: \"v\" device: \"/job:", job, "\"");
    graph.replace(graph.find("name: \"v\""), 9, place);
    return graph;
  };
  const auto is_set = [&](std::string_view job) {
    return run_code(step(open(graph_on(job)), {"get:0"})).ok();
  };
  for (const char* job : {"worker", "ps"}) {
    EXPECT_TRUE(run_code(step(open(graph_on(job)), {}, {"set"}, 7)).ok());
  }
  const std::string before = open();
  const auto reset = [&](std::vector<std::string> containers, std::vector<std::string> filters) {
    ResetRequest request;
    for (std::string& container : containers) request.add_container(std::move(container));
    for (std::string& filter : filters) request.add_device_filters(std::move(filter));
    return call(request).status;
  };
  EXPECT_EQ(reset({}, {"no device"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(service_->sessions(), 3u);
  EXPECT_TRUE(reset({"another"}, {}).ok());
  EXPECT_EQ(service_->sessions(), 0u);
  EXPECT_EQ(run_code(step(before, {"get:0"})).code(), Code::kAborted);
  EXPECT_TRUE(is_set("worker") && is_set("ps"));
  EXPECT_TRUE(reset({}, {"/job:ps"}).ok());
  EXPECT_TRUE(is_set("worker"));
  EXPECT_FALSE(is_set("ps"));
  EXPECT_TRUE(reset({"worker"}, {}).ok());  // the default container by the name of the job
  EXPECT_FALSE(is_set("worker"));
}

TEST_F(MasterServiceTest, ResetReachesTasksByCalls) {
  use({.target = str_cat("inprocess://", cluster_.cluster_name())});
  EXPECT_TRUE(run_code(step(open(), {}, {"set"}, 7)).ok());
  ResetRequest request;
  request.add_device_filters("/job:worker/task:1");
  EXPECT_TRUE(call(request).status.ok());
  EXPECT_TRUE(run_code(step(open(), {"get:0"})).ok());
  request.set_device_filters(0, "/job:worker/task:0");
  request.add_container("worker");
  EXPECT_TRUE(call(request).status.ok());
  EXPECT_FALSE(run_code(step(open(), {"get:0"})).ok());
}

TEST_F(MasterServiceTest, Callables) {
  const std::string handle = open();
  MakeCallableRequest make;
  make.set_session_handle(handle);
  make.set_request_id(5);
  CallableOptions& options = *make.mutable_options();
  options.add_feed("x:0");
  options.add_fetch("y:0");
  options.add_fetch("y:0");
  options.mutable_run_options()->set_trace_level(tensorflow::RunOptions::FULL_TRACE);
  Answer<MakeCallableResponse> made = call(make);
  ASSERT_TRUE(made.status.ok()) << made.status.to_string();
  // Asked again after a lost answer: the same callable.
  EXPECT_EQ(call(make).response.handle(), made.response.handle());
  make.set_request_id(6);
  EXPECT_NE(call(make).response.handle(), made.response.handle());

  RunCallableRequest run;
  run.set_session_handle(handle);
  run.set_handle(made.response.handle());
  run.set_request_id(8);
  EXPECT_EQ(call(run).status.code(), Code::kInvalidArgument);  // no feed
  MR_CHECK_OK(tensor_to_proto(Tensor::scalar<float>(4), *run.add_feed()));
  run.set_request_id(9);
  Answer<RunCallableResponse> ran = call(run);
  ASSERT_TRUE(ran.status.ok()) << ran.status.to_string();
  ASSERT_EQ(ran.response.fetch_size(), 2);
  EXPECT_EQ(float_of(ran.response.fetch(1)), 8);
  EXPECT_GE(ran.response.metadata().step_stats().dev_stats_size(), 1);
  EXPECT_EQ(call(run).status.code(), Code::kAborted);  // once

  ReleaseCallableRequest release;
  release.set_session_handle(handle);
  release.set_handle(made.response.handle());
  EXPECT_TRUE(call(release).status.ok());
  EXPECT_EQ(call(release).status.code(), Code::kInvalidArgument);
  run.set_request_id(10);
  EXPECT_EQ(call(run).status.code(), Code::kInvalidArgument);
  release.set_session_handle("none");
  EXPECT_EQ(call(release).status.code(), Code::kAborted);

  make.set_request_id(11);
  options.add_tensor_connection()->set_from_tensor("x:0");
  EXPECT_EQ(call(make).status.code(), Code::kUnimplemented);
  options.clear_tensor_connection();
  (*options.mutable_feed_devices())["x:0"] = "/device:CPU:0";
  EXPECT_EQ(call(make).status.code(), Code::kUnimplemented);
}

TEST_F(MasterServiceTest, ARunWithAnIdHappensOnce) {
  const std::string handle = open();
  EXPECT_TRUE(run_code(step(handle, {}, {"set"}, 1)).ok());
  RunStepRequest add = step(handle, {}, {"add"});
  EXPECT_TRUE(run_code(add).ok());
  EXPECT_TRUE(run_code(add).ok());  // without an id: as often as it comes
  add.set_request_id(77);
  EXPECT_TRUE(run_code(add).ok());
  EXPECT_EQ(run_code(add).code(), Code::kAborted);
  EXPECT_EQ(float_of(call(step(handle, {"get:0"})).response.tensor(0).tensor()), 7);
}

TEST_F(MasterServiceTest, PartialRuns) {
  use({.max_partial_runs = 2});
  const std::string handle = open(str_cat(kGraph, R"(
    node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "b" op: "Add" input: "a" input: "y" attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "late" op: "Add" input: "a" input: "stuck"
           attr { key: "T" value { type: DT_FLOAT } } })"));
  PartialRunSetupRequest setup;
  setup.set_session_handle(handle);
  setup.set_request_id(3);
  for (const char* name : {"x:0", "a:0"}) setup.add_feed(name);
  for (const char* name : {"y:0", "b:0"}) setup.add_fetch(name);
  Answer<PartialRunSetupResponse> answer = call(setup);
  ASSERT_TRUE(answer.status.ok()) << answer.status.to_string();
  const std::string run = answer.response.partial_run_handle();
  EXPECT_EQ(call(setup).response.partial_run_handle(), run);

  RunStepRequest piece = step(handle, {"y:0"}, {}, 3);
  piece.set_partial_run_handle(run);
  piece.add_target("set");
  EXPECT_EQ(run_code(piece).code(), Code::kInvalidArgument);
  piece.clear_target();
  EXPECT_EQ(float_of(call(piece).response.tensor(0).tensor()), 6);
  RunStepRequest rest = step(handle, {"b:0"});
  rest.set_partial_run_handle(run);
  feed(rest, "a:0", 1);
  EXPECT_EQ(float_of(call(rest).response.tensor(0).tensor()), 7);
  EXPECT_EQ(run_code(rest).code(), Code::kInvalidArgument);

  // Cancelling a call ends the whole run.
  setup.set_request_id(4);
  setup.clear_fetch();
  setup.add_fetch("late:0");
  RunStepRequest wait = step(handle, {"late:0"});
  feed(wait, "a:0", 1);
  const int before = stuck_so_far();
  wait.set_partial_run_handle(call(setup).response.partial_run_handle());
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  auto future = start(wait, cancel);
  wait_for_stuck(before + 1);
  cancel->cancel(cancelled("the client has left"));
  EXPECT_EQ(finish<RunStepRequest>(future).status.code(), Code::kCancelled);

  // So many at once.
  for (int id = 10; id < 13; ++id) {
    setup.set_request_id(id);
    EXPECT_EQ(call(setup).status.code(), id < 12 ? Code::kOk : Code::kResourceExhausted);
  }
}

TEST_F(MasterServiceTest, AFullHouseRefusesRunsAtOnceAndLetsSessionsBeClosed) {
  use({.max_calls = 3, .max_session_calls = 2});
  const std::string first = open(), second = open();
  const int before = stuck_so_far();
  auto a = start(step(first, {"stuck:0"}));
  auto b = start(step(first, {"stuck:0"}));
  wait_for_stuck(before + 2);
  EXPECT_EQ(run_code(step(first, {"y:0"}, {}, 1)).code(), Code::kResourceExhausted);
  EXPECT_TRUE(run_code(step(second, {"y:0"}, {}, 1)).ok());
  auto c = start(step(second, {"stuck:0"}));
  wait_for_stuck(before + 3);
  EXPECT_EQ(run_code(step(second, {"y:0"}, {}, 1)).code(), Code::kResourceExhausted);
  EXPECT_EQ(create("").status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(close(first).ok());
  EXPECT_EQ(finish<RunStepRequest>(a).status.code(), Code::kCancelled);
  EXPECT_EQ(finish<RunStepRequest>(b).status.code(), Code::kCancelled);
  EXPECT_TRUE(run_code(step(second, {"y:0"}, {}, 1)).ok());
  service_->shut_down();
  EXPECT_EQ(finish<RunStepRequest>(c).status.code(), Code::kCancelled);
  EXPECT_EQ(create("").status.code(), Code::kUnavailable);
}

TEST_F(MasterServiceTest, AQueueIsFilledWhileOthersWaitForIt) {
  const std::string handle = open(str_cat(kGraph, R"(
    node { name: "q" op: "FIFOQueueV2"
           attr { key: "component_types" value { list { type: DT_FLOAT } } } }
    node { name: "put" op: "QueueEnqueueV2" input: "q" input: "x"
           attr { key: "Tcomponents" value { list { type: DT_FLOAT } } } }
    node { name: "take" op: "QueueDequeueV2" input: "q"
           attr { key: "component_types" value { list { type: DT_FLOAT } } } })"));
  constexpr int kWaiting = 100;
  std::vector<std::future<std::pair<Status, std::string>>> waiting;
  for (int i = 0; i < kWaiting; ++i) waiting.push_back(start(step(handle, {"take:0"})));
  float sum = 0;
  for (int i = 1; i <= kWaiting; ++i) {
    EXPECT_TRUE(run_code(step(handle, {}, {"put"}, static_cast<float>(i))).ok());
  }
  for (auto& future : waiting) {
    sum += float_of(finish<RunStepRequest>(future).response.tensor(0).tensor());
  }
  EXPECT_EQ(sum, kWaiting * (kWaiting + 1) / 2);
}

TEST_F(MasterServiceTest, AnIdleSessionMakesRoom) {
  use({.max_sessions = 2, .idle_ms = 0});
  const std::string first = open(), second = open();
  EXPECT_TRUE(run_code(step(first, {"y:0"}, {}, 1)).ok());
  const std::string third = open();
  EXPECT_TRUE(run_code(step(first, {"y:0"}, {}, 1)).ok());
  EXPECT_EQ(run_code(step(second, {"y:0"}, {}, 1)).code(), Code::kAborted);
  // Not one that is in use.
  const int before = stuck_so_far();
  auto a = start(step(first, {"stuck:0"}));
  auto b = start(step(third, {"stuck:0"}));
  wait_for_stuck(before + 2);
  EXPECT_EQ(create(kGraph).status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(close(first).ok() && close(third).ok());
  a.get();
  b.get();
  use({.max_sessions = 1});
  open();
  EXPECT_EQ(create(kGraph).status.code(), Code::kResourceExhausted);
}

TEST_F(MasterServiceTest, GraphsTakeNoMoreThanTheyMay) {
  const int64_t bytes = static_cast<int64_t>(graph_of(kGraph).ByteSizeLong());
  const int64_t more = static_cast<int64_t>(graph_of(kMore).ByteSizeLong());
  use({.max_graph_bytes = 2 * bytes + more});
  const std::string first = open(), second = open();
  const Status full = create(kGraph).status;
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_NE(full.message().find("MILLRACE_CLUSTER_MAX_GRAPH_MB"), std::string_view::npos);
  EXPECT_TRUE(extend(first, kMore, 0).status.ok());
  EXPECT_EQ(extend(second, kMore, 0).status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(close(first).ok());
  EXPECT_TRUE(extend(second, kMore, 0).status.ok());
  // What fails is not counted.
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(extend(second, kGraph, 7).status.ok());
  EXPECT_TRUE(create(kGraph).status.ok());
  EXPECT_TRUE(call(ResetRequest()).status.ok());
  EXPECT_TRUE(create(kGraph).status.ok());
}

TEST_F(MasterServiceTest, CreatingWaitsForTasks) {
  use({.target = str_cat("inprocess://", cluster_.cluster_name())});
  ASSERT_TRUE(cluster_.cluster().stop(kTask1).ok());
  EXPECT_EQ(create("", "operation_timeout_in_ms: 20").status.code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(create("", "device_filters: '/job:worker/task:0'").status.ok());
  auto waiting = start(CreateSessionRequest());
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  ASSERT_TRUE(cluster_.cluster().restart(kTask1).ok());
  EXPECT_TRUE(finish<CreateSessionRequest>(waiting).status.ok());
  EXPECT_EQ(service_->sessions(), 2u);

  // Who leaves meanwhile leaves no session.
  ASSERT_TRUE(cluster_.cluster().stop(kTask1).ok());
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  auto left = start(CreateSessionRequest(), cancel);
  cancel->cancel(cancelled("the client has left"));
  EXPECT_EQ(finish<CreateSessionRequest>(left).status.code(), Code::kCancelled);
  EXPECT_EQ(service_->sessions(), 2u);
  auto ended = start(CreateSessionRequest());
  service_->shut_down();
  EXPECT_EQ(finish<CreateSessionRequest>(ended).status.code(), Code::kUnavailable);
}

TEST_F(MasterServiceTest, ListsDevices) {
  Answer<ListDevicesResponse> all = call(ListDevicesRequest());
  ASSERT_TRUE(all.status.ok()) << all.status.to_string();
  ASSERT_EQ(all.response.local_device_size(), 1);
  const tensorflow::DeviceAttributes& own = all.response.local_device(0);
  EXPECT_EQ(own.name(), "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(own.device_type(), "CPU");
  EXPECT_NE(own.incarnation(), 0u);
  ASSERT_EQ(all.response.remote_device_size(), 1);
  EXPECT_EQ(all.response.remote_device(0).name(), "/job:ps/replica:0/task:0/device:CPU:0");
  ListDevicesRequest request;
  request.set_session_handle(open("", "device_filters: '/job:worker'"));
  EXPECT_EQ(call(request).response.remote_device_size(), 0);
  EXPECT_EQ(call(request).response.local_device(0).incarnation(), own.incarnation());
  request.set_session_handle("none");
  EXPECT_EQ(call(request).status.code(), Code::kAborted);
}

TEST_F(MasterServiceTest, ConfigsAreMergedIntoTheServers) {
  EXPECT_EQ(create("", "cluster_def { job { name: 'a' } }").status.code(), Code::kInvalidArgument);
  EXPECT_EQ(create("", "device_count { key: 'CPU' value: -1 }").status.code(),
            Code::kInvalidArgument);
  EXPECT_EQ(create("", "device_filters: 'no device'").status.code(), Code::kInvalidArgument);
  tensorflow::ConfigProto config;
  config.set_operation_timeout_in_ms(20);
  use({.config = config.SerializeAsString()});
  EXPECT_EQ(run_code(step(open(), {"stuck:0"})).code(), Code::kDeadlineExceeded);
  EXPECT_FALSE(MasterService::create({.config = "\1"}).ok());
  EXPECT_FALSE(MasterService::create({.max_calls = 0}).ok());
}

TEST_F(MasterServiceTest, IsolatedSessionsHaveStateOfTheirOwn) {
  const char* const kIsolated = "isolate_session_state: true";
  for (const std::string& target :
       {std::string(kTarget), str_cat("inprocess://", cluster_.cluster_name())}) {
    use({.target = target});
    EXPECT_TRUE(run_code(step(open(), {}, {"set"}, 7)).ok());
    const std::string first = open(kGraph, kIsolated), second = open(kGraph, kIsolated);
    EXPECT_EQ(run_code(step(first, {"get:0"})).code(), Code::kFailedPrecondition);
    EXPECT_TRUE(run_code(step(first, {}, {"set"}, 3)).ok());
    EXPECT_TRUE(run_code(step(second, {}, {"set"}, 4)).ok());
    EXPECT_EQ(float_of(call(step(first, {"get:0"})).response.tensor(0).tensor()), 3);
    EXPECT_EQ(float_of(call(step(open(), {"get:0"})).response.tensor(0).tensor()), 7);
    EXPECT_TRUE(close(first).ok());
    EXPECT_EQ(float_of(call(step(second, {"get:0"})).response.tensor(0).tensor()), 4);
  }
}

// Two nodes that read a file, one of them in a function, and one that keeps a queue for others.
constexpr const char* kReaching = R"(
  node { name: "name" op: "Const" attr { key: "dtype" value { type: DT_STRING } }
         attr { key: "value" value { tensor { dtype: DT_STRING tensor_shape {}
                                              string_val: "/etc/hostname" } } } }
  node { name: "read" op: "ReadFile" input: "name" }
  node { name: "called" op: "ReadInside" input: "name" }
  node { name: "size" op: "QueueSizeV2" input: "queue" }
  node { name: "queue" op: "FIFOQueueV2" attr { key: "shared_name" value { s: "theirs" } }
         attr { key: "component_types" value { list { type: DT_FLOAT } } } }
  node { name: "own_size" op: "QueueSizeV2" input: "own_queue" }
  node { name: "own_queue" op: "FIFOQueueV2"
         attr { key: "component_types" value { list { type: DT_FLOAT } } } }
  library { function {
    signature { name: "ReadInside" input_arg { name: "name" type: DT_STRING }
                output_arg { name: "text" type: DT_STRING } }
    node_def { name: "inner" op: "ReadFile" input: "name" }
    ret { key: "text" value: "inner:contents:0" } } }
)";

TEST_F(MasterServiceTest, ClientsReachNoMoreThanTheirRights) {
  for (const std::string& target :
       {std::string(kTarget), str_cat("inprocess://", cluster_.cluster_name())}) {
    use({.target = target});
    EXPECT_TRUE(run_code(step(open(), {}, {"set"}, 7)).ok());
    EXPECT_TRUE(run_code(step(open(kReaching), {"read:0", "called:0", "size:0"})).ok());
    use({.target = target, .rights = GraphRights::none()});
    const auto refusal = [&](const std::string& graph, const std::string& fetch,
                             const char* config = "") {
      const Status status = run_code(step(open(graph, config), {fetch}));
      EXPECT_EQ(status.code(), Code::kPermissionDenied) << status.to_string();
      return std::string(status.message());
    };
    for (const char* config : {"", "isolate_session_state: true"}) {
      const std::string read = refusal(kReaching, "read:0", config);
      EXPECT_NE(read.find("ReadFile \"read\""), std::string::npos) << read;
      EXPECT_NE(read.find("MILLRACE_CLUSTER_ALLOW=files"), std::string::npos) << read;
      refusal(kReaching, "called:0", config);
      EXPECT_TRUE(run_code(step(open(kReaching, config), {"own_size:0"})).ok());
    }
    const std::string get = refusal(kGraph, "get:0");
    EXPECT_NE(get.find("MILLRACE_CLUSTER_ALLOW=state"), std::string::npos) << get;
    EXPECT_NE(get.find("isolate_session_state"), std::string::npos) << get;
    refusal(kReaching, "size:0");
    EXPECT_EQ(run_code(step(open(kGraph, "isolate_session_state: true"), {"get:0"})).code(),
              Code::kFailedPrecondition);
    // A handle that the client made up leads to its own state, too.
    RunStepRequest forged = step(open(kGraph, "isolate_session_state: true"), {"get:0"});
    tensorflow::NamedTensorProto& handle = *forged.add_feed();
    handle.set_name("v:0");
    handle.mutable_tensor()->set_dtype(tensorflow::DT_RESOURCE);
    handle.mutable_tensor()->mutable_tensor_shape();
    tensorflow::ResourceHandleProto& value = *handle.mutable_tensor()->add_resource_handle_val();
    value.set_device("/job:worker/replica:0/task:0/device:CPU:0");
    value.set_container("localhost");
    value.set_name("v");
    value.set_maybe_type_name("Var");
    EXPECT_FALSE(run_code(forged).ok());
    EXPECT_EQ(call(ResetRequest()).status.code(), Code::kPermissionDenied);
    use({.target = target});
    EXPECT_EQ(float_of(call(step(open(), {"get:0"})).response.tensor(0).tensor()), 7);
    use({.target = target, .rights = {.files = true, .state = false}});
    EXPECT_TRUE(run_code(step(open(kReaching), {"read:0", "called:0"})).ok());
  }
}

TEST_F(MasterServiceTest, OtherMethodsAreTheNextHandlers) {
  EXPECT_EQ(start_bytes(*service_, "/tensorflow.MasterService/Fly", "").get().first.code(),
            Code::kUnimplemented);
  struct Next final : CallHandler {
    void handle(std::string_view method, Message request, Ref<CancellationToken>,
                CallDone done) override {
      request.fields += method;
      done(ok_status(), std::move(request));
    }
  };
  use({.next = make_ref<Next>()});
  EXPECT_EQ(start_bytes(*service_, "/other/Fly", "to ").get().second, "to /other/Fly");
  EXPECT_TRUE(create("").status.ok());
}

TEST_F(MasterServiceTest, WhatIsNoRequestIsInvalid) {
  const std::string handle = open();
  const std::vector<std::string> methods = {
      "CreateSession", "ExtendSession", "PartialRunSetup", "RunStep",     "CloseSession",
      "ListDevices",   "Reset",         "MakeCallable",    "RunCallable", "ReleaseCallable"};
  for (const std::string& method : methods) {
    const std::string path = str_cat("/tensorflow.MasterService/", method);
    EXPECT_EQ(start_bytes(*service_, path, "\x0a\x7f").get().first.code(), Code::kInvalidArgument)
        << method;
    std::promise<Status> parts;
    Message message;
    message.parts.emplace_back();
    service_->handle(path, std::move(message), make_ref<CancellationToken>(),
                     [&parts](Status status, const Message&) { parts.set_value(status); });
    EXPECT_EQ(parts.get_future().get().code(), Code::kInvalidArgument) << method;
    // Empty handles.
    if (method == "CreateSession" || method == "ListDevices" || method == "Reset") continue;
    EXPECT_EQ(start_bytes(*service_, path, "").get().first.code(), Code::kInvalidArgument)
        << method;
  }

  const auto feeding = [&](const char* text) {
    RunStepRequest request = step(handle, {"y:0"});
    MR_CHECK(google::protobuf::TextFormat::ParseFromString(text, request.add_feed()));
    return run_code(request).code();
  };
  EXPECT_EQ(feeding("name: 'x:0'"), Code::kInvalidArgument);
  EXPECT_EQ(feeding("name: 'x:0' tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } "
                    "tensor_content: '1234' }"),
            Code::kInvalidArgument);
  EXPECT_EQ(feeding("name: 'x:0' tensor { dtype: DT_FLOAT tensor_shape { dim { size: -2 } } }"),
            Code::kInvalidArgument);
  EXPECT_EQ(feeding("name: 'x:0' tensor { dtype: DT_FLOAT tensor_shape { unknown_rank: true } }"),
            Code::kInvalidArgument);
  EXPECT_EQ(feeding("name: 'x:0' tensor { dtype: DT_FLOAT float_val: 1 "
                    "tensor_shape { dim { size: 1099511627776 } } }"),
            Code::kResourceExhausted);
  EXPECT_EQ(feeding("name: 'x:9' tensor { dtype: DT_FLOAT float_val: 1 tensor_shape {} }"),
            Code::kInvalidArgument);
  EXPECT_EQ(feeding("name: '' tensor { dtype: DT_FLOAT float_val: 1 tensor_shape {} }"),
            Code::kInvalidArgument);
  // All feeds of a run together.
  use({.max_expanded_bytes = 1 << 20});
  RunStepRequest large = step(open(), {"y:0"});
  for (const char* name : {"x:0", "two:0"}) {
    tensorflow::NamedTensorProto& fed = *large.add_feed();
    fed.set_name(name);
    MR_CHECK(google::protobuf::TextFormat::ParseFromString(
        "dtype: DT_FLOAT float_val: 1 tensor_shape { dim { size: 150000 } }",
        fed.mutable_tensor()));
  }
  EXPECT_EQ(run_code(large).code(), Code::kResourceExhausted);
  large.mutable_feed()->RemoveLast();
  EXPECT_TRUE(run_code(large).ok());
}

TEST_F(MasterServiceTest, RunsThatAskForNothingOrTheUnknownAreRefused) {
  const std::string handle = open();
  EXPECT_EQ(run_code(step(handle, {})).code(), Code::kInvalidArgument);
  EXPECT_EQ(run_code(step(handle, {}, {"none"})).code(), Code::kNotFound);
  RunStepRequest twice = step(handle, {"y:0"}, {}, 1);
  feed(twice, "x", 1);
  EXPECT_EQ(run_code(twice).code(), Code::kInvalidArgument);
}

// Any bytes are answered, and the session goes on.
TEST_F(MasterServiceTest, RandomBytesAreAnswered) {
  const google::protobuf::LogSilencer silence;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 random(seed);
  const std::string handle = open(kGraph, "operation_timeout_in_ms: 50");
  RunStepRequest run = step(handle, {"y:0"}, {"add"}, 1);
  run.mutable_options()->set_trace_level(tensorflow::RunOptions::FULL_TRACE);
  ExtendSessionRequest extend;
  extend.set_session_handle(handle);
  *extend.mutable_graph_def() = graph_of(kMore);
  PartialRunSetupRequest setup;
  setup.set_session_handle(handle);
  setup.add_feed("x:0");
  setup.add_fetch("y:0");
  MakeCallableRequest make;
  make.set_session_handle(handle);
  make.mutable_options()->add_target("add");
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"RunStep", run.SerializeAsString()},
      {"ExtendSession", extend.SerializeAsString()},
      {"PartialRunSetup", setup.SerializeAsString()},
      {"MakeCallable", make.SerializeAsString()}};
  for (int i = 0; i < 400; ++i) {
    auto [method, bytes] = requests[random() % requests.size()];
    if (random() % 2 == 0) bytes.resize(random() % bytes.size());
    for (size_t n = random() % 4; n > 0 && !bytes.empty(); --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    (void)start_bytes(*service_, str_cat("/tensorflow.MasterService/", method), bytes).get();
  }
  EXPECT_TRUE(run_code(step(handle, {"y:0"}, {}, 1)).ok());
}

// Sessions come, run, grow, are closed and reset by several clients at once.
TEST_F(MasterServiceTest, ManyClientsAtOnce) {
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([this, c] {
      for (int i = 0; i < 10; ++i) {
        const std::string handle = open();
        auto stuck = start(step(handle, {"stuck:0"}));
        auto more = extend(handle, kMore, 0).status;
        auto ran = run_code(step(handle, {"y:0"}, {}, 1));
        if (c == 0 && i % 4 == 3) {
          EXPECT_TRUE(call(ResetRequest()).status.ok());
        } else {
          (void)close(handle);
        }
        for (const Status& status : {more, ran, stuck.get().first}) {
          EXPECT_TRUE(status.ok() || status.code() == Code::kAborted ||
                      status.code() == Code::kCancelled)
              << status.to_string();
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(service_->sessions(), 0u);
}

}  // namespace
}  // namespace millrace
