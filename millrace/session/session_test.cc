#include "millrace/session/session.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "millrace/base/file.h"
#include "millrace/base/file_testing.h"
#include "millrace/session/session_testing.h"
#include "proto/config.pb.h"

namespace millrace {
namespace {

using SemanticsOfFeedsAndFetches = SessionTest;

TEST_F(SemanticsOfFeedsAndFetches, FeedsAndFetchesByName) {
  Expr x = placeholder("x");
  add("Add", "y", {x, constant(1)});
  auto s = session();
  Result<std::vector<Tensor>> out = s->run({{"x", f32(2)}}, {"y", "y:0", "y"});
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  ASSERT_EQ(out->size(), 3u);
  for (const Tensor& t : *out) EXPECT_EQ(t.item<float>(), 3);
}

TEST_F(SemanticsOfFeedsAndFetches, GraphsReachTheFilesThatTheSessionMay) {
  TemporaryDirectory open;
  TemporaryDirectory closed;
  for (const TemporaryDirectory* dir : {&open, &closed}) {
    ASSERT_TRUE(write_file_atomically(posix_file_system(), *dir / "x", "contents").ok());
  }
  Expr path = add("Placeholder", "path", {}, {{"dtype", DType::kString}});
  add("ReadFile", "read", {path});
  SessionOptions options;
  options.files = FileAccess::only({.read = {open.path()}, .write = {}}).value();
  auto s = session(options);
  const auto read = [&](const TemporaryDirectory& dir) {
    return s->run({{"path", Tensor::scalar<std::string>(dir / "x")}}, {"read"});
  };
  EXPECT_EQ(read(open).value()[0].item<std::string>(), "contents");
  EXPECT_EQ(read(closed).status().code(), Code::kPermissionDenied);
}

TEST_F(SemanticsOfFeedsAndFetches, AnyTensorCanBeFed) {
  Expr a = add("Neg", "a", {constant(1)});
  Expr b = add("Neg", "b", {a});
  add("Neg", "c", {b});
  auto s = session();
  EXPECT_EQ(s->run({{"b:0", f32(5)}}, {"c"}).value()[0].item<float>(), -5);
  EXPECT_EQ(s->run({{"a", f32(7)}}, {"c", "b"}).value()[1].item<float>(), -7);
  EXPECT_EQ(s->run({}, {"c"}).value()[0].item<float>(), -1);
}

TEST_F(SemanticsOfFeedsAndFetches, AFedConstantIsNotFolded) {
  Expr c = add("Const", "c", {}, {{"value", f32(1)}, {"dtype", DType::kFloat}});
  add("Add", "y", {c, c});
  auto s = session();
  EXPECT_EQ(s->run({{"c", f32(10)}}, {"y"}).value()[0].item<float>(), 20);
}

TEST_F(SemanticsOfFeedsAndFetches, Mistakes) {
  Expr x = placeholder("x");
  add("Neg", "y", {x});
  builder_->add("NoOp", "nothing", {}).value();
  auto s = session();
  EXPECT_EQ(code_of(s->run({{"x", f32(1)}, {"x:0", f32(1)}}, {"y"})), Code::kInvalidArgument);
  EXPECT_TRUE(said("fed twice")) << message_;
  EXPECT_EQ(code_of(s->run({{"x", f32(1)}}, {"x"})), Code::kInvalidArgument);
  EXPECT_EQ(s->run({{"x", f32(1)}}, {"x:0"}).value()[0].item<float>(), 1);  // another string
  EXPECT_EQ(code_of(s->run({}, {"nothing"})), Code::kInvalidArgument);
  EXPECT_EQ(code_of(s->run({}, {"y:1"})), Code::kInvalidArgument);
  EXPECT_EQ(code_of(s->run({}, {"z"})), Code::kNotFound);
  EXPECT_EQ(code_of(s->run({{"z", f32(1)}}, {"y"})), Code::kNotFound);
  EXPECT_EQ(code_of(s->run({}, {}, {"y:0"})), Code::kNotFound);
  EXPECT_EQ(code_of(s->run({}, {})), Code::kInvalidArgument);
  EXPECT_EQ(code_of(s->run({}, {"y"})), Code::kInvalidArgument);
  EXPECT_TRUE(said("placeholder tensor 'x' with dtype float")) << message_;
  EXPECT_EQ(code_of(s->run({{"x", Tensor::scalar<int32_t>(1)}}, {"y"})), Code::kInternal);
  EXPECT_TRUE(s->run({}, {}, {"nothing"}).ok());
}

TEST_F(SemanticsOfFeedsAndFetches, ControlEdgesOfAFedPlaceholderMoveToTheFeed) {
  Expr x = placeholder("x");
  Expr a = add("Neg", "a", {constant(1)});
  builder_->context().control_inputs = {GraphBuilder::output(x).node};
  add("Neg", "y", {constant(3)});
  builder_->context().control_inputs = {GraphBuilder::output(a).node};
  add("Neg", "z", {constant(3)});
  builder_->context().control_inputs.clear();
  auto s = session();
  EXPECT_TRUE(s->run({{"x", f32(1)}}, {"y"}).ok());
  EXPECT_EQ(code_of(s->run({}, {"y"})), Code::kInvalidArgument);
  EXPECT_TRUE(s->run({{"a", f32(1)}}, {"z"}).ok());
}

TEST_F(SessionTest, TheCallerOwnsWhatIsFetched) {
  Expr x = placeholder("x");
  add("Identity", "y", {x});
  auto s = session();
  Tensor fed = f32(4);
  Tensor out = s->run({{"x", fed}}, {"y"}).value()[0];
  EXPECT_FALSE(out.shares_buffer_with(fed));
  EXPECT_TRUE(out.writable());
}

TEST_F(SessionTest, SeesNodesAddedLater) {
  Expr x = placeholder("x");
  Expr y = add("Neg", "y", {x});
  auto s = session();
  EXPECT_TRUE(s->run({{"x", f32(1)}}, {"y"}).ok());
  add("Neg", "z", {y});
  EXPECT_EQ(s->run({{"x", f32(1)}}, {"z"}).value()[0].item<float>(), 1);
  EXPECT_EQ(graph_->set_device(0, "/cpu:0").code(), Code::kFailedPrecondition);
}

TEST_F(SessionTest, ACallableIsPreparedOnce) {
  Expr x = placeholder("x");
  add("Add", "y", {x, x});
  auto s = session();
  auto call = s->make_callable({{"x"}, {"y"}, {}});
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  std::vector<Tensor> out;
  for (float v : {1.0f, 2.0f}) {
    ASSERT_TRUE((*call)->run(std::vector<Tensor>{f32(v)}, out).ok());
    EXPECT_EQ(out[0].item<float>(), 2 * v);
  }
  EXPECT_EQ((*call)->run({}, out).code(), Code::kInvalidArgument);
  EXPECT_TRUE(s->close().ok());
  EXPECT_EQ((*call)->run(std::vector<Tensor>{f32(1)}, out).code(), Code::kFailedPrecondition);
}

TEST_F(SessionTest, AnErrorLeavesTheSessionUsable) {
  Expr x = placeholder("x");
  Expr ok = add("Greater", "ok", {x, constant(0)});
  std::vector<Output> inputs = {GraphBuilder::output(ok), GraphBuilder::output(x)};
  builder_->context().origin = intern_origin({.file = "train.py", .line = 3, .code = "check(x)"});
  ASSERT_TRUE(builder_->add("Assert", "check", inputs).ok());
  auto s = session();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(code_of(s->run({{"x", f32(-1)}}, {}, {"check"})), Code::kInvalidArgument);
    EXPECT_TRUE(said("Assert \"check\"") && said("defined at train.py:3  check(x)") &&
                said("[[{{node check}}]]"))
        << message_;
    EXPECT_TRUE(s->run({{"x", f32(1)}}, {}, {"check"}).ok());
  }
}

using SemanticsOfPartialRun = SessionTest;

TEST_F(SemanticsOfPartialRun, FeedsAndFetchesInPieces) {
  Expr a = placeholder("a"), b = placeholder("b"), c = placeholder("c");
  Expr r1 = add("Add", "r1", {a, b});
  add("Mul", "r2", {r1, c});
  auto s = session();
  Result<std::string> handle = s->partial_run_setup({{"a", "b", "c"}, {"r1", "r2"}, {}});
  ASSERT_TRUE(handle.ok()) << handle.status().to_string();
  EXPECT_EQ(code_of(s->partial_run(*handle, {{"a", f32(1)}}, {"r1"})), Code::kInvalidArgument);
  EXPECT_TRUE(said("depends on feed 'b'")) << message_;
  EXPECT_EQ(
      s->partial_run(*handle, {{"a", f32(1)}, {"b", f32(2)}}, {"r1"}).value()[0].item<float>(), 3);
  EXPECT_EQ(code_of(s->partial_run(*handle, {{"a", f32(1)}}, {})), Code::kInvalidArgument);
  EXPECT_EQ(code_of(s->partial_run(*handle, {}, {"r1"})), Code::kInvalidArgument);
  EXPECT_EQ(s->partial_run(*handle, {{"c", f32(10)}}, {"r2"}).value()[0].item<float>(), 30);
  EXPECT_EQ(code_of(s->partial_run(*handle, {}, {"r2"})), Code::kInvalidArgument);
}

TEST_F(SemanticsOfPartialRun, ClosingTheSessionEndsOneThatWaits) {
  Expr a = placeholder("a");
  add("Neg", "y", {a});
  auto s = session();
  ASSERT_TRUE(s->partial_run_setup({{"a"}, {"y"}, {}}).ok());
  EXPECT_TRUE(s->close().ok());
}

// Abandoning what runs on the first device must not end the run before the second is abandoned.
TEST_F(SemanticsOfPartialRun, ClosingTheSessionEndsOneOnTwoDevices) {
  for (const char* name : {"a", "b"}) {
    builder_->context().device = name[0] == 'a' ? "/cpu:0" : "/cpu:1";
    add("Neg", name[0] == 'a' ? "x" : "y", {placeholder(name)});
  }
  builder_->context().device.clear();
  auto s = session({.cpu_devices = 2});
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(s->partial_run_setup({{"a", "b"}, {"x", "y"}, {}}).ok());
  }
  Result<std::string> half = s->partial_run_setup({{"a", "b"}, {"x", "y"}, {}});
  ASSERT_TRUE(half.ok());
  EXPECT_EQ(s->partial_run(*half, {{"a", f32(1)}}, {"x"}).value()[0].item<float>(), -1);
  EXPECT_TRUE(s->close().ok());
}

TEST_F(SemanticsOfPartialRun, ADeadFetchLeavesTheRestToBeFedAndFetched) {
  Expr p = add("Placeholder", "p", {}, {{"dtype", DType::kBool}});
  Expr a = placeholder("a");
  Expr branch = add("Switch", "branch", {a, p});
  add("Identity", "no", {branch});
  add("Neg", "y", {placeholder("b")});
  auto s = session();
  std::string run = s->partial_run_setup({{"p", "a", "b"}, {"no", "y"}, {}}).value();
  EXPECT_EQ(code_of(s->partial_run(run, {{"p", Tensor::scalar(true)}, {"a", f32(1)}}, {"no"})),
            Code::kInvalidArgument);
  EXPECT_EQ(s->partial_run(run, {{"b", f32(2)}}, {"y"}).value()[0].item<float>(), -2);
}

TEST_F(SessionTest, AStraightRunNoticesASignalBetweenSteps) {
  Expr x = placeholder("x");
  for (int i = 0; i < 2000; ++i) x = call("Exp", {x});
  add("Neg", "y", {x});
  auto s = session({.gear = Gear::kStraight});
  static std::atomic<int> asked{0};
  asked = 0;
  auto callable = s->make_callable({{"x"}, {"y"}, {}}, {.interrupted = [] {
                                     asked.fetch_add(1);
                                     return true;
                                   }});
  ASSERT_TRUE(callable.ok());
  Tensor large = Tensor::zeros(DType::kFloat, Shape({1 << 19})).value();
  std::vector<Tensor> out;
  EXPECT_EQ((*callable)->run({&large, 1}, out).code(), Code::kCancelled);
  EXPECT_EQ(asked.load(), 1);
}

TEST_F(SessionTest, AWrongNameIsNotTakenForTwoRightOnes) {
  add("Neg", "a", {constant(1)});
  add("Neg", "b", {constant(2)});
  auto s = session();
  ASSERT_TRUE(s->run({}, {"a", "b"}).ok());
  EXPECT_FALSE(s->run({}, {"a,b"}).ok());
  EXPECT_FALSE(s->run({}, {"a,b,"}).ok());
  EXPECT_FALSE(s->run({}, {"a1:b"}).ok());
}

TEST_F(SessionTest, PlansUsedLongAgoAreDropped) {
  Expr x = placeholder("x");
  for (int i = 0; i < 100; ++i) add("Neg", str_cat("y", i).c_str(), {x});
  auto s = session({.max_plan_bytes = 50'000});
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(s->run({{"x", f32(1)}}, {str_cat("y", i)}).value()[0].item<float>(), -1);
    }
  }
}

TEST_F(SessionTest, SeveralDevicesGiveTheSameResult) {
  Expr x = placeholder("x");
  Expr y = x;
  for (int i = 0; i < 12; ++i) {
    builder_->context().device = str_cat("/cpu:", i % 3);
    y = y + x;
  }
  builder_->context().device.clear();
  add("Identity", "y", {y});
  auto s = session({.cpu_devices = 3});
  EXPECT_EQ(s->list_devices().size(), 3u);
  EXPECT_EQ(s->run({{"x", f32(2)}}, {"y"}).value()[0].item<float>(), 26);
  EXPECT_NE(s->explain({{"x"}, {"y"}, {}}).value().find("_Recv"), std::string::npos);
}

TEST_F(SessionTest, ExplainsWhatIsFusedAndWhyOthersAreNot) {
  Expr x = placeholder("x");
  Expr a = add("Neg", "a", {x});
  Expr b = add("Exp", "b", {a});
  Expr c = add("L2Loss", "c", {b});
  add("Sub", "d", {b, c});
  auto s = session();
  const std::string text = s->explain({{"x"}, {"d"}, {}}).value();
  EXPECT_NE(text.find("_FusedElementwise b (frame 0) -> "), std::string::npos) << text;
  EXPECT_NE(text.find("is a, b\n"), std::string::npos) << text;
  EXPECT_NE(text.find("not with b: it is read by c before\n"), std::string::npos) << text;
  auto without = session({.disabled_passes = {"fuse_elementwise"}});
  EXPECT_EQ(without->explain({{"x"}, {"d"}, {}}).value().find("_Fused"), std::string::npos);
}

TEST_F(SessionTest, ErrorsOfFusedNodesNameTheNode) {
  Expr x = placeholder("x"), y = placeholder("y");
  Expr a = add("Neg", "a", {x});
  add("Exp", "c", {add("AddV2", "b", {a, y})});
  const std::vector<std::pair<std::string, Tensor>> feeds = {
      {"x", Tensor::vector<float>({1, 2})}, {"y", Tensor::vector<float>({1, 2, 3})}};
  const Status status = session()->run(feeds, {"c"}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  const std::string text = status.to_string();
  for (const char* part : {"AddV2 \"b\"", "[2]", "[3]", "[[{{node b}}]]"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(text.find("_Fused"), std::string::npos) << text;
}

TEST_F(SessionTest, ADeviceThatDoesNotExistNamesThoseThatDo) {
  builder_->context().device = "/cpu:7";
  add("Neg", "y", {constant(1)});
  EXPECT_EQ(code_of(session()->run({}, {"y"})), Code::kInvalidArgument);
  EXPECT_TRUE(said("CPU:7") && said("CPU:0")) << message_;
  EXPECT_TRUE(session({.soft_placement = true})->run({}, {"y"}).ok());
}

TEST_F(SessionTest, ADeadlineEndsARunThatWaits) {
  // The first device waits for a value that the second one never has.
  builder_->context().device = "/cpu:1";
  Expr queue =
      add("FIFOQueueV2", "queue", {}, {{"component_types", std::vector<DType>{DType::kFloat}}});
  Expr never = add("QueueDequeueV2", "never", {queue},
                   {{"component_types", std::vector<DType>{DType::kFloat}}});
  builder_->context().device = "/cpu:0";
  add("Neg", "r", {never});
  auto s = session({.cpu_devices = 2});
  EXPECT_EQ(code_of(s->run({}, {"r"}, {}, {.timeout_ms = 20})), Code::kDeadlineExceeded);
  EXPECT_TRUE(said("never")) << message_;
  Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  cancel->cancel(cancelled("by the user"));
  EXPECT_EQ(code_of(s->run({}, {"r"}, {}, {.cancel = cancel})), Code::kCancelled);
  EXPECT_TRUE(s->close().ok());
  EXPECT_EQ(code_of(s->run({}, {"r"})), Code::kFailedPrecondition);
}

TEST_F(SessionTest, ATraceNamesNodesAndIsWritten) {
  Expr x = placeholder("x");
  add("Neg", "y", {x});
  auto s = session({.gear = Gear::kParallel});
  TemporaryDirectory dir;
  RunMetadata metadata;
  RunOptions options = {.trace = true, .trace_path = dir.path() + "/trace.json"};
  ASSERT_TRUE(s->run({{"x", f32(1)}}, {"y"}, {}, options, &metadata).ok());
  bool found = false;
  for (const TraceEvent& e : metadata.events) found |= e.node == "y" && e.op == "Neg";
  EXPECT_TRUE(found);
  std::string text = read_file(posix_file_system(), options.trace_path).value();
  EXPECT_NE(text.find("\"traceEvents\""), std::string::npos);
}

TEST_F(SessionTest, ATracedRunGoesAsOthersDo) {
  Expr x = placeholder("x");
  Expr y = add("Neg", "y", {x});
  add("Exp", "z", {y});
  for (const Gear gear : {Gear::kAuto, Gear::kParallel}) {
    auto s = session({.optimizer_level = 0, .gear = gear});
    RunMetadata metadata;
    ASSERT_TRUE(s->run({{"x", f32(1)}}, {"z"}, {}, {.trace = true}, &metadata).ok());
    std::vector<std::string> kernels;
    int waits = 0;
    for (const TraceEvent& e : metadata.events) {
      waits += e.kind == TraceEvent::Kind::kQueueWait;
      if (e.kind == TraceEvent::Kind::kKernel) kernels.push_back(e.node);
    }
    EXPECT_EQ(kernels, (std::vector<std::string>{"y", "z"}));
    EXPECT_EQ(waits, gear == Gear::kAuto ? 0 : 2);
    EXPECT_NE(metadata.plans.find("Exp"), std::string::npos) << metadata.plans;
    EXPECT_GT(metadata.memory.peak_bytes, 0);
    // Another run is not traced.
    const size_t told = metadata.events.size();
    ASSERT_TRUE(s->run({{"x", f32(1)}}, {"z"}, {}, {}, &metadata).ok());
    EXPECT_EQ(metadata.events.size(), told);
  }
}

// An error's trace has what ran before it.
TEST_F(SessionTest, ATraceOfAFailedRunIsWritten) {
  Expr x = placeholder("x");
  Expr y = add("Neg", "y", {x});
  add("MatMul", "z", {y, y});
  for (const Gear gear : {Gear::kAuto, Gear::kParallel}) {
    auto s = session({.optimizer_level = 0, .gear = gear});
    TemporaryDirectory dir;
    const RunOptions options = {.trace_path = dir.path() + "/trace.json"};
    EXPECT_FALSE(s->run({{"x", f32(1)}}, {"z"}, {}, options).ok());
    const std::string text = read_file(posix_file_system(), options.trace_path).value();
    EXPECT_NE(text.find("\"Neg\""), std::string::npos) << text;
  }
}

TEST_F(SessionTest, AForkedChildGetsAnErrorInsteadOfAHang) {
  Expr x = placeholder("x");
  add("Neg", "y", {x});
  auto s = session();
  ASSERT_TRUE(s->run({{"x", f32(1)}}, {"y"}).ok());
  pid_t child = fork();
  if (child == 0) {
    Result<std::vector<Tensor>> out = s->run({{"x", f32(1)}}, {"y"});
    bool right = out.status().code() == Code::kFailedPrecondition &&
                 out.status().message().find("fork") != std::string_view::npos;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(SessionTest, ReadsTheOptionsOfAMessage) {
  tensorflow::ConfigProto config;
  (*config.mutable_device_count())["CPU"] = 3;
  config.set_allow_soft_placement(true);
  config.set_operation_timeout_in_ms(250);
  config.mutable_graph_options()->mutable_optimizer_options()->set_opt_level(
      tensorflow::OptimizerOptions::L0);
  SessionOptions options = SessionOptions::from_proto(config).value();
  EXPECT_EQ(options.cpu_devices, 3);
  EXPECT_TRUE(options.soft_placement);
  EXPECT_EQ(options.timeout_ms, 250);
  EXPECT_EQ(options.optimizer_level, 0);
  tensorflow::GraphOptions& graph_options = *config.mutable_graph_options();
  graph_options.clear_optimizer_options();
  EXPECT_EQ(SessionOptions::from_proto(config)->optimizer_level, 2);
  graph_options.mutable_optimizer_options()->add_disabled_passes("dead_nodes");
  tensorflow::RewriterConfig& rewrite = *graph_options.mutable_rewrite_options();
  rewrite.set_disable_meta_optimizer(true);
  rewrite.set_constant_folding(tensorflow::RewriterConfig::OFF);
  options = SessionOptions::from_proto(config).value();
  EXPECT_EQ(options.optimizer_level, 1);
  EXPECT_EQ(options.disabled_passes, (std::vector<std::string>{"dead_nodes", "constant_folding"}));
  (*config.mutable_device_count())["CPU"] = -1;
  EXPECT_EQ(SessionOptions::from_proto(config).status().code(), Code::kInvalidArgument);
}

// What a library for GPUs was asked for, which gives none.
GpuOptions asked_for_gpus;

TEST_F(SessionTest, AsksForTheGpusOfAMessage) {
  tensorflow::ConfigProto config;
  tensorflow::GPUOptions& gpu = *config.mutable_gpu_options();
  gpu.set_per_process_gpu_memory_fraction(0.5);
  gpu.set_visible_device_list("1,0");
  auto& devices = *gpu.mutable_experimental()->add_virtual_devices();
  devices.add_memory_limit_mb(100);
  devices.add_memory_limit_mb(200);
  (*config.mutable_device_count())["GPU"] = 2;
  static const GpuLibrary library = {
      [](const DeviceName&, const GpuOptions& options) -> Result<std::vector<Ref<Device>>> {
        asked_for_gpus = options;
        if (options.visible == "9") return invalid_argument("there is no GPU 9");
        return std::vector<Ref<Device>>();
      }};
  set_gpu_library(&library);
  ASSERT_TRUE(Session::create(graph_, SessionOptions::from_proto(config).value()).ok());
  EXPECT_EQ(asked_for_gpus.count, 2);
  EXPECT_EQ(asked_for_gpus.memory_fraction, 0.5);
  EXPECT_EQ(asked_for_gpus.visible, "1,0");
  EXPECT_EQ(asked_for_gpus.virtual_megabytes, (std::vector<std::vector<double>>{{100, 200}}));
  gpu.set_visible_device_list("9");
  EXPECT_EQ(Session::create(graph_, SessionOptions::from_proto(config).value()).status().code(),
            Code::kInvalidArgument);
  // None are wanted: the library is not asked.
  (*config.mutable_device_count())["GPU"] = 0;
  EXPECT_TRUE(Session::create(graph_, SessionOptions::from_proto(config).value()).ok());
  set_gpu_library(nullptr);
  (*config.mutable_device_count())["GPU"] = -1;
  EXPECT_EQ(SessionOptions::from_proto(config).status().code(), Code::kInvalidArgument);
}

// Every toggle of a RewriterConfig that means passes here names some that exist.
TEST_F(SessionTest, TogglesOfAMessageSwitchPassesOff) {
  tensorflow::ConfigProto config;
  tensorflow::RewriterConfig& rewrite = *config.mutable_graph_options()->mutable_rewrite_options();
  rewrite.set_constant_folding(tensorflow::RewriterConfig::OFF);
  rewrite.set_common_subgraph_elimination(tensorflow::RewriterConfig::OFF);
  rewrite.set_arithmetic_optimization(tensorflow::RewriterConfig::OFF);
  rewrite.set_loop_optimization(tensorflow::RewriterConfig::OFF);
  rewrite.set_remapping(tensorflow::RewriterConfig::OFF);
  rewrite.set_layout_optimizer(tensorflow::RewriterConfig::OFF);
  const SessionOptions options = SessionOptions::from_proto(config).value();
  EXPECT_FALSE(options.disabled_passes.empty());
  EXPECT_TRUE(Session::create(graph_, options).ok());
}

TEST_F(SessionTest, PassesToDisableMustExist) {
  const Status status = Session::create(graph_, {.disabled_passes = {"no_such_pass"}}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("constant_folding"), std::string_view::npos);
}

TEST_F(SessionTest, UnknownTargetsOfSessionsAreNamed) {
  Result<std::unique_ptr<Session>> s = Session::create(graph_, {.target = "carrier-pigeon://here"});
  EXPECT_EQ(s.status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace millrace
