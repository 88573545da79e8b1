// test-labels: threads
#include "millrace/distributed/worker.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/distributed_testing.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

// One worker without a cluster around it, asked directly.
class WorkerTest : public testing::Test {
 protected:
  WorkerTest() {
    register_test_ops();
    std::vector<Ref<Device>> devices =
        make_cpu_devices(DeviceName::parse(kTask0).value(), 2).value();
    device_ = devices[0];
    worker_ =
        Worker::create(std::string(kTask0), std::move(devices), make_ref<WorkerCache>(), timer_)
            .value();
  }
  ~WorkerTest() override { worker_->shut_down(cancelled("the test is over")); }

  // y = feed 2 + 1, sent to task 1 as "out" and fetched at position 3.
  Result<std::string> register_sum(uint64_t incarnation = 0, int64_t lease_ms = 0) {
    TestGraph g;
    g.builder().context().device = device_->name();
    Expr y =
        call("Add", {g.feed(DType::kFloat, 2), g.builder().constant(Tensor::scalar<float>(1))});
    g.fetch(y, 3);
    g.builder().emit(
        "_Send", {y},
        {{"tensor_name", "out"},
         {"send_device", device_->name()},
         {"recv_device", receiver()},
         {"send_device_incarnation", static_cast<int64_t>(device_->info().incarnation)}});
    MR_TRY(g.builder().status());
    return add_graph(g, incarnation, lease_ms);
  }
  Result<std::string> add_graph(TestGraph& g, uint64_t incarnation = 0, int64_t lease_ms = 0) {
    RegisterGraphRequest request;
    request.session = "s";
    request.lease_ms = lease_ms;
    request.incarnation = incarnation;
    MR_TRY_ASSIGN(request.graph_def, Subgraph::from_graph(g.graph()).to_graph_def_bytes());
    std::optional<Result<std::string>> answer;
    worker_->register_graph(std::move(request),
                            [&](Result<std::string> r) { answer = std::move(r); });
    return *answer;
  }
  static std::string receiver() { return str_cat(kTask1, "/device:CPU:0"); }
  std::string key(std::string_view tensor, uint64_t incarnation_offset = 0) const {
    return RendezvousKey{device_->name(),
                         device_->info().incarnation + incarnation_offset,
                         receiver(),
                         std::string(tensor),
                         0,
                         0}
        .to_string();
  }

  // The answer of one call, waited for.
  struct Answer {
    Status status;
    RunGraphResponse response;
    Value value;
  };
  struct Waiter {
    Mutex mu;
    CondVar changed;
    std::optional<Answer> answer MR_GUARDED_BY(mu);
    void set(Answer a) {
      MutexLock lock(mu);
      answer = std::move(a);
      changed.notify_all();
    }
    Answer get() {
      MutexLock lock(mu);
      while (!answer) changed.wait(mu);
      return std::move(*answer);
    }
    bool there() {
      MutexLock lock(mu);
      return answer.has_value();
    }
  };
  using Pending = std::shared_ptr<Waiter>;

  static RunGraphRequest request_for(const std::string& handle, int64_t step,
                                     std::vector<std::pair<int, Tensor>> feeds,
                                     std::vector<int> fetches) {
    RunGraphRequest request;
    request.graph_handle = handle;
    request.step_id = step;
    request.feeds = std::move(feeds);
    request.fetches = std::move(fetches);
    return request;
  }
  Pending run(const std::string& handle, int64_t step, std::vector<std::pair<int, Tensor>> feeds,
              std::vector<int> fetches, Ref<CancellationToken> cancel = nullptr) {
    return run(request_for(handle, step, std::move(feeds), std::move(fetches)), std::move(cancel));
  }
  Pending run(RunGraphRequest request, Ref<CancellationToken> cancel = nullptr) {
    auto waiter = std::make_shared<Waiter>();
    worker_->run_graph(
        std::move(request), std::move(cancel),
        [waiter](Status s, RunGraphResponse r) { waiter->set({std::move(s), std::move(r), {}}); });
    return waiter;
  }
  Pending recv(int64_t step, std::string key, Ref<CancellationToken> cancel = nullptr) {
    auto waiter = std::make_shared<Waiter>();
    worker_->recv_tensor({step, std::move(key)}, std::move(cancel), [waiter](Status s, Value v) {
      waiter->set({std::move(s), {}, std::move(v)});
    });
    return waiter;
  }
  Status cleanup(int64_t step) {
    Status status;
    worker_->cleanup_step(step, [&](Status s) { status = std::move(s); });
    return status;
  }
  Status abort(int64_t step, Status reason) {
    Status status;
    worker_->abort_step(step, std::move(reason), [&](Status s) { status = std::move(s); });
    return status;
  }

  Status keep(KeepSessionRequest request) {
    Status status;
    worker_->keep_session(std::move(request), [&](Status s) { status = std::move(s); });
    return status;
  }

  static std::vector<std::pair<int, Tensor>> feed(float value) {
    return {{2, Tensor::scalar<float>(value)}};
  }

  Ref<ManualTimer> timer_ = make_ref<ManualTimer>();
  Ref<Device> device_;
  Ref<Worker> worker_;
};

constexpr int64_t kMilli = 1'000'000;

testing::AssertionResult says_the_lease_ran_out(const Status& status) {
  if (status.code() == Code::kAborted &&
      status.message().find("lease of session s on") != std::string_view::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << status.to_string();
}

TEST_F(WorkerTest, RunsWhatWasRegistered) {
  std::string handle = register_sum(worker_->incarnation()).value();
  Answer answer = run(handle, 1, feed(41), {3})->get();
  ASSERT_TRUE(answer.status.ok()) << answer.status.to_string();
  ASSERT_EQ(answer.response.fetches.size(), 1u);
  EXPECT_EQ(answer.response.fetches[0].item<float>(), 42);
  EXPECT_EQ(recv(1, key("out"))->get().value.tensor.item<float>(), 42);
  EXPECT_TRUE(cleanup(1).ok());
  EXPECT_TRUE(worker_->steps().empty());
}

TEST_F(WorkerTest, WhatIsSentMayComeWithTheAnswer) {
  std::string handle = register_sum().value();
  RunGraphRequest request = request_for(handle, 1, feed(41), {});
  request.sends = {key("out")};
  Answer answer = run(std::move(request))->get();
  ASSERT_TRUE(answer.status.ok()) << answer.status.to_string();
  ASSERT_EQ(answer.response.sent.size(), 1u);
  EXPECT_EQ(answer.response.sent[0].tensor.item<float>(), 42);
  EXPECT_TRUE(answer.response.prompt) << "it waits for nothing";
  // Who lost the answer and asks again gets the same.
  request = request_for(handle, 1, feed(41), {});
  request.sends = {key("out")};
  answer = run(std::move(request))->get();
  ASSERT_EQ(answer.response.sent.size(), 1u);
  EXPECT_EQ(answer.response.sent[0].tensor.item<float>(), 42);
}

TEST_F(WorkerTest, WhatIsAskedForAndNotSentIsAnError) {
  std::string handle = register_sum().value();
  RunGraphRequest request = request_for(handle, 1, feed(41), {});
  request.sends = {key("out"), key("another")};
  Answer answer = run(std::move(request))->get();
  EXPECT_EQ(answer.status.code(), Code::kInvalidArgument) << answer.status.to_string();
  request = request_for(handle, 2, feed(41), {});
  request.sends = {"no key"};
  EXPECT_EQ(run(std::move(request))->get().status.code(), Code::kInvalidArgument);
}

// y = what task 1 sends as "in", fetched at position 0.
TEST_F(WorkerTest, WhatIsGivenIsNotAskedFor) {
  const std::string sender = receiver();
  TestGraph g;
  g.builder().context().device = device_->name();
  g.fetch(g.builder().emit("_Recv", {},
                           {{"tensor_type", DType::kFloat},
                            {"tensor_name", "in"},
                            {"send_device", sender},
                            {"recv_device", device_->name()},
                            {"send_device_incarnation", int64_t{7}}})[0],
          0);
  ASSERT_TRUE(g.builder().status().ok()) << g.builder().status().to_string();
  const std::string handle = add_graph(g).value();
  const std::string in = RendezvousKey{sender, 7, device_->name(), "in", 0, 0}.to_string();
  const auto give = [&](int64_t step, float value) {
    Status status;
    worker_->give_tensor(step, in, Value::of(Tensor::scalar(value)),
                         [&](Status s) { status = std::move(s); });
    return status;
  };
  EXPECT_EQ(run(handle, 1, {}, {0})->get().status.code(), Code::kNotFound) << "nobody to ask";

  RunGraphRequest request = request_for(handle, 2, {}, {0});
  request.given = {in};
  const Pending waits = run(std::move(request));
  EXPECT_FALSE(waits->there());
  EXPECT_TRUE(give(2, 5).ok());
  Answer answer = waits->get();
  ASSERT_TRUE(answer.status.ok()) << answer.status.to_string();
  EXPECT_EQ(answer.response.fetches[0].item<float>(), 5);
  EXPECT_FALSE(answer.response.prompt) << "it waits for another task";
  EXPECT_TRUE(give(2, 6).ok()) << "the same, made again";

  EXPECT_TRUE(give(3, 7).ok()) << "it may come before the run";
  request = request_for(handle, 3, {}, {0});
  request.given = {in};
  EXPECT_EQ(run(std::move(request))->get().response.fetches[0].item<float>(), 7);
  EXPECT_TRUE(cleanup(3).ok());
  EXPECT_EQ(give(3, 8).code(), Code::kAborted);

  request = request_for(handle, 4, {}, {0});
  request.brought.emplace_back(in, Value::of(Tensor::scalar(9.0F)));
  answer = run(std::move(request))->get();
  ASSERT_TRUE(answer.status.ok()) << answer.status.to_string();
  EXPECT_EQ(answer.response.fetches[0].item<float>(), 9);
  EXPECT_TRUE(answer.response.prompt) << "it came with the call";
}

// feed 2 is sent to task 1 as "first"; the square root of what task 1 sends as "in", as "second".
class TwoCallsTest : public WorkerTest {
 protected:
  TwoCallsTest() {
    TestGraph g;
    g.builder().context().device = device_->name();
    send(g, g.feed(DType::kFloat, 2), "first");
    const Expr in = g.builder().emit("_Recv", {},
                                     {{"tensor_type", DType::kFloat},
                                      {"tensor_name", "in"},
                                      {"send_device", receiver()},
                                      {"recv_device", device_->name()},
                                      {"send_device_incarnation", int64_t{7}}})[0];
    send(g, call("CheckNumerics", {call("Sqrt", {in})}, {{"message", "a negative number"}}),
         "second");
    handle_ = add_graph(g).value();
  }
  void send(TestGraph& g, Expr value, std::string name) {
    g.builder().emit(
        "_Send", {value},
        {{"tensor_name", std::move(name)},
         {"send_device", device_->name()},
         {"recv_device", receiver()},
         {"send_device_incarnation", static_cast<int64_t>(device_->info().incarnation)}});
    ASSERT_TRUE(g.builder().status().ok()) << g.builder().status().to_string();
  }
  RunGraphRequest first(int64_t step) const {
    RunGraphRequest request = request_for(handle_, step, feed(3), {});
    request.early = {key("first")};
    request.sends = {key("second")};
    request.given = {in()};
    return request;
  }
  RunGraphRequest second(int64_t step, float value) const {
    RunGraphRequest request = request_for(handle_, step, {}, {});
    request.continues = true;
    request.brought.emplace_back(in(), Value::of(Tensor::scalar(value)));
    return request;
  }
  std::string in() const {
    return RendezvousKey{receiver(), 7, device_->name(), "in", 0, 0}.to_string();
  }
  std::string handle_;
};

TEST_F(TwoCallsTest, TheFirstIsAnsweredWithWhatIsSentEarlyTheSecondWithTheRest) {
  for (int again = 0; again < 2; ++again) {  // as after lost connections: it runs once
    const Answer early = run(first(1))->get();
    ASSERT_TRUE(early.status.ok()) << early.status.to_string();
    EXPECT_TRUE(early.response.goes_on);
    EXPECT_TRUE(early.response.prompt);
    ASSERT_EQ(early.response.sent.size(), 1u);
    EXPECT_EQ(early.response.sent[0].tensor.item<float>(), 3);
  }
  for (const float brought : {16.0F, 25.0F}) {  // only what came first counts
    const Answer last = run(second(1, brought))->get();
    ASSERT_TRUE(last.status.ok()) << last.status.to_string();
    EXPECT_FALSE(last.response.goes_on);
    EXPECT_TRUE(last.response.waits_for_peers_only);
    ASSERT_EQ(last.response.sent.size(), 1u);
    EXPECT_EQ(last.response.sent[0].tensor.item<float>(), 4);
  }
  EXPECT_EQ(worker_->activity(0).steps_begun, 1);
  EXPECT_TRUE(cleanup(1).ok());
  EXPECT_EQ(run(second(1, 16))->get().status.code(), Code::kAborted);
}

TEST_F(TwoCallsTest, ASecondCallBeginsNothing) {
  EXPECT_EQ(run(second(1, 16))->get().status.code(), Code::kAborted);
  const Pending whole = run(request_for(handle_, 2, feed(3), {}));  // not answered early
  EXPECT_EQ(run(second(2, 16))->get().status.code(), Code::kAborted);
}

TEST_F(TwoCallsTest, ErrorsAreAnsweredWhicheverCallIsOpen) {
  // Between the calls.
  EXPECT_TRUE(run(first(1))->get().status.ok());
  EXPECT_TRUE(abort(1, data_loss("elsewhere")).ok());
  const Answer aborted = run(second(1, 16))->get();
  EXPECT_EQ(aborted.status.code(), Code::kDataLoss) << aborted.status.to_string();
  EXPECT_TRUE(aborted.response.derived);
  // Of the rest.
  EXPECT_TRUE(run(first(2))->get().status.ok());
  const Answer failed = run(second(2, -1))->get();
  EXPECT_EQ(failed.status.code(), Code::kInvalidArgument) << failed.status.to_string();
  EXPECT_FALSE(failed.response.derived);
  // What is never sent: the end of the run says so.
  RunGraphRequest request = first(3);
  request.early.push_back(key("third"));
  const Pending never = run(std::move(request));
  worker_->give_tensor(3, in(), Value::of(Tensor::scalar(16.0F)), [](const Status&) {});
  EXPECT_EQ(never->get().status.code(), Code::kInvalidArgument);
}

TEST_F(TwoCallsTest, WhoGivesUpTheFirstCallEndsTheRun) {
  RunGraphRequest request = first(1);
  request.early.push_back(key("second"));
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  const Pending waits = run(std::move(request), cancel);
  EXPECT_FALSE(waits->there());
  cancel->cancel(cancelled("enough"));
  for (const bool again : {false, true}) {
    const Status ended = (again ? run(second(1, 16)) : waits)->get().status;
    EXPECT_EQ(ended.code(), Code::kCancelled) << ended.to_string();
    EXPECT_NE(ended.message().find("enough"), std::string::npos) << ended.to_string();
  }
}

TEST_F(WorkerTest, ARunCleansUpOtherSteps) {
  std::string handle = register_sum().value();
  EXPECT_TRUE(run(handle, 1, feed(1), {})->get().status.ok());
  RunGraphRequest request = request_for(handle, 2, feed(1), {});
  request.over_steps = {1, 77};
  EXPECT_TRUE(run(std::move(request))->get().status.ok());
  ASSERT_EQ(worker_->steps().size(), 1u);
  EXPECT_EQ(run(handle, 1, feed(1), {})->get().status.code(), Code::kAborted);
}

TEST_F(WorkerTest, APeerMayAskBeforeTheStepBegins) {
  std::string handle = register_sum().value();
  Pending early = recv(5, key("out"));
  EXPECT_FALSE(early->there());
  ASSERT_EQ(worker_->steps().size(), 1u);
  EXPECT_NE(worker_->steps()[0].find(key("out")), std::string::npos);
  EXPECT_TRUE(run(handle, 5, feed(1), {})->get().status.ok());
  EXPECT_EQ(early->get().value.tensor.item<float>(), 2);
}

// Queues without a shared name and random states end with their session, variables do not.
TEST_F(WorkerTest, DeletedSessionsLeaveNothingOfTheirOwn) {
  TestGraph g;
  g.builder().context().device = device_->name();
  g.builder().emit("FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat}}});
  g.fetch(call("RandomUniform", {int32_vector(g.builder(), {2})}, {{"dtype", DType::kFloat}}), 0);
  const Expr handle =
      g.builder().emit("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape()}})[0];
  g.builder().emit("AssignVariableOp", {handle, g.builder().constant(Tensor::scalar(1.0F))}, {});
  ASSERT_TRUE(g.builder().status().ok()) << g.builder().status().to_string();
  ASSERT_TRUE(run(add_graph(g).value(), 1, {}, {0})->get().status.ok());
  EXPECT_EQ(device_->resources().list().size(), 3u);

  Status status;
  worker_->delete_session("another", [&](Status s) { status = std::move(s); });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(device_->resources().list().size(), 3u);
  worker_->delete_session("s", [&](Status s) { status = std::move(s); });
  EXPECT_TRUE(status.ok());
  const std::vector<ResourceManager::Entry> left = device_->resources().list();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].type, "Variable");
  worker_->shut_down(cancelled("the test is over"));
  worker_->delete_session("s", [&](Status s) { status = std::move(s); });
  EXPECT_EQ(status.code(), Code::kCancelled);
}

// A master that is not heard of any more leaves nothing but shared state behind.
TEST_F(WorkerTest, ALeaseThatRunsOutEndsAllThatASessionHas) {
  TestGraph g;
  g.builder().context().device = device_->name();
  const Expr queue = g.builder().emit("FIFOQueueV2", {},
                                      {{"component_types", std::vector<DType>{DType::kFloat}}})[0];
  g.fetch(g.builder().emit("QueueDequeueV2", {queue},
                           {{"component_types", std::vector<DType>{DType::kFloat}}})[0],
          0);
  const Expr handle =
      g.builder().emit("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape()}})[0];
  g.builder().emit("AssignVariableOp", {handle, g.builder().constant(Tensor::scalar(1.0F))}, {});
  ASSERT_TRUE(g.builder().status().ok()) << g.builder().status().to_string();
  const std::string sum = register_sum(0, 100).value(), waits = add_graph(g, 0, 100).value();
  const Pending waiting = run(waits, 1, {}, {0});
  ASSERT_TRUE(run(sum, 2, feed(1), {3})->get().status.ok());  // never cleaned up
  while (device_->resources().list().size() < 2 ||
         worker_->activity(1).steps[0].waits_for.empty()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(worker_->activity(1).steps[0].waits_for,
            std::vector<std::string>{"QueueDequeueV2 \"QueueDequeueV2\""});
  timer_->advance(99 * kMilli);
  ASSERT_TRUE(keep({.session = "s", .lease_ms = 100}).ok());
  timer_->advance(99 * kMilli);
  EXPECT_FALSE(waiting->there());
  const WorkerActivity before = worker_->activity(0);
  ASSERT_EQ(before.sessions.size(), 1u);
  EXPECT_EQ(before.sessions[0].name, "s");
  EXPECT_EQ(before.sessions[0].graphs, 2);
  EXPECT_EQ(before.sessions[0].lease_left_ms, 1);
  EXPECT_EQ(before.steps.size(), 2u);
  EXPECT_EQ(worker_->activity(2).steps.size(), 1u);

  timer_->advance(1 * kMilli);
  EXPECT_TRUE(says_the_lease_ran_out(waiting->get().status));
  EXPECT_EQ(worker_->num_graphs(), 0);
  EXPECT_TRUE(worker_->steps().empty());
  EXPECT_TRUE(worker_->activity(0).sessions.empty());
  EXPECT_EQ(timer_->scheduled(), 0u);
  const std::vector<ResourceManager::Entry> left = device_->resources().list();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].type, "Variable");

  // Who was away only is told why all is gone.
  EXPECT_TRUE(says_the_lease_ran_out(run(sum, 3, feed(1), {3})->get().status));
  EXPECT_TRUE(says_the_lease_ran_out(register_sum(0, 100).status()));
  EXPECT_TRUE(says_the_lease_ran_out(keep({.session = "s", .lease_ms = 100})));
  EXPECT_TRUE(worker_->steps().empty());
}

TEST_F(WorkerTest, CountsWhatItDoes) {
  const std::string handle = register_sum().value();
  ASSERT_TRUE(run(handle, 1, feed(1), {3})->get().status.ok());
  ASSERT_TRUE(recv(1, key("out"))->get().status.ok());
  const Ref<CancellationToken> cancelled_call = make_ref<CancellationToken>();
  cancelled_call->cancel(cancelled("not wanted"));
  EXPECT_FALSE(run(handle, 2, feed(1), {3}, cancelled_call)->get().status.ok());
  EXPECT_FALSE(run(handle, 3, {}, {3})->get().status.ok());  // lacks a feed: does not begin
  timer_->advance(5 * kMilli);
  const WorkerActivity told = worker_->activity(0);
  EXPECT_EQ(told.steps_begun, 2);
  EXPECT_EQ(told.steps_ended, 2);
  EXPECT_EQ(told.steps_failed, 1);
  EXPECT_EQ(told.up_ms, 5);
  std::map<std::string, std::pair<int64_t, int64_t>> bytes;
  for (const auto& t : told.transfers) {
    bytes[str_cat(t.peer, " ", t.kind)] = {t.received_bytes, t.sent_bytes};
  }
  EXPECT_GT(bytes["master graph"].first, 0);
  bytes.erase("master graph");
  using Bytes = decltype(bytes);
  EXPECT_EQ(bytes,
            (Bytes{{"master feed", {8, 0}}, {"master fetch", {0, 4}}, {"other tensor", {0, 4}}}));
  EXPECT_EQ(worker_->activity(1).steps_begun, 0) << "a question about one step is about it alone";
}

TEST_F(WorkerTest, TellsOfQueues) {
  TestGraph g;
  g.builder().context().device = device_->name();
  const AttrMap types = {{"component_types", std::vector<DType>{DType::kFloat}}};
  AttrMap attrs = types;
  attrs.set("capacity", int64_t{3});
  attrs.set("shared_name", "jobs");
  const Expr queue = g.builder().emit("FIFOQueueV2", {}, attrs)[0];
  AttrMap put = {{"Tcomponents", std::vector<DType>{DType::kFloat}}};
  g.builder().emit("QueueEnqueueV2", {queue, g.builder().constant(Tensor::scalar(1.0F))}, put);
  ASSERT_TRUE(g.builder().status().ok()) << g.builder().status().to_string();
  const std::string handle = add_graph(g).value();
  for (const int64_t step : {1, 2}) ASSERT_TRUE(run(handle, step, {}, {})->get().status.ok());
  const std::vector<WorkerActivity::Queue> queues = worker_->activity(0).queues;
  ASSERT_EQ(queues.size(), 1u);
  EXPECT_EQ(queues[0].name, "jobs");
  EXPECT_EQ(queues[0].device, device_->name());
  EXPECT_EQ(queues[0].size, 2);
  EXPECT_EQ(queues[0].capacity, 3);
  EXPECT_FALSE(queues[0].closed);
}

TEST_F(WorkerTest, ASessionWithoutALeaseStays) {
  const std::string handle = register_sum().value();
  EXPECT_EQ(timer_->scheduled(), 0u);
  timer_->advance(int64_t{1} << 60);
  EXPECT_TRUE(run(handle, 1, feed(1), {3})->get().status.ok());
  ASSERT_EQ(worker_->activity(0).sessions.size(), 1u);
  EXPECT_EQ(worker_->activity(0).sessions[0].lease_left_ms, -1);
}

TEST_F(WorkerTest, DeletedSessionsEndTheirStepsAndGraphs) {
  const std::string handle = register_sum().value();
  ASSERT_TRUE(run(handle, 1, feed(1), {3})->get().status.ok());
  const Pending never = recv(1, key("never"));
  worker_->delete_session("s", [](const Status&) {});
  EXPECT_EQ(never->get().status.code(), Code::kCancelled);
  EXPECT_EQ(worker_->num_graphs(), 0);
  EXPECT_TRUE(worker_->steps().empty());
}

TEST_F(WorkerTest, SignsOfLifeSayWhatWasNotHeard) {
  const std::string handle = register_sum(0, 100).value();
  ASSERT_TRUE(run(handle, 1, feed(1), {3})->get().status.ok());
  ASSERT_TRUE(
      keep({.session = "s", .lease_ms = 100, .over_steps = {1, 99}, .over_graphs = {handle, "x"}})
          .ok());
  EXPECT_TRUE(worker_->steps().empty());
  EXPECT_EQ(worker_->num_graphs(), 0);
  EXPECT_EQ(recv(1, key("out"))->get().status.code(), Code::kAborted);
}

TEST_F(WorkerTest, SignsOfLifeAreChecked) {
  const uint64_t other = worker_->incarnation() + 1;
  EXPECT_EQ(keep({.session = "s", .lease_ms = 100, .incarnation = other}).code(), Code::kAborted);
  for (const int64_t wrong : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    EXPECT_EQ(keep({.session = "s", .lease_ms = wrong}).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(register_sum(0, -1).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(worker_->activity(0).sessions.empty());
  worker_->shut_down(unavailable("gone"));
  EXPECT_EQ(keep({.session = "s", .lease_ms = 1}).code(), Code::kUnavailable);
}

// A peer may ask before the step begins, but nobody is left to clean up a step that never does.
TEST_F(WorkerTest, AStepThatNeverBeginsIsForgottenOnceNobodyWaits) {
  const int64_t while_ns = lease_ms_for(lost_after_ms()) * kMilli;
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  const Pending early = recv(5, key("out"), cancel);
  ASSERT_TRUE(abort(6, internal("elsewhere")).ok());
  timer_->advance(100 * while_ns);
  EXPECT_FALSE(early->there());
  EXPECT_EQ(worker_->steps().size(), 1u) << "somebody waits in one of them";
  cancel->cancel(cancelled("the peer has ended"));
  EXPECT_EQ(early->get().status.code(), Code::kCancelled);
  timer_->advance(2 * while_ns);
  EXPECT_TRUE(worker_->steps().empty());
  EXPECT_EQ(timer_->scheduled(), 0u);
  const std::string handle = register_sum().value();
  EXPECT_EQ(run(handle, 5, feed(1), {3})->get().status.code(), Code::kAborted);
}

TEST_F(WorkerTest, UnknownHandlesAndRestartsAreAborted) {
  std::string handle = register_sum().value();
  EXPECT_EQ(run("no_such_graph", 1, {}, {})->get().status.code(), Code::kAborted);
  EXPECT_EQ(register_sum(worker_->incarnation() + 1).status().code(), Code::kAborted);
  EXPECT_EQ(recv(1, key("out", 1))->get().status.code(), Code::kAborted);
  EXPECT_EQ(worker_->num_graphs(), 1);
  Status status;
  worker_->deregister_graph(handle, [&](Status s) { status = std::move(s); });
  EXPECT_TRUE(status.ok());
  worker_->deregister_graph(handle, [&](Status s) { status = std::move(s); });
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_EQ(worker_->num_graphs(), 0);
}

TEST_F(WorkerTest, BadRequestsAreInvalid) {
  std::string handle = register_sum().value();
  Tensor one = Tensor::scalar<float>(1);
  auto code = [&](std::vector<std::pair<int, Tensor>> feeds, std::vector<int> fetches) {
    return run(handle, 9, std::move(feeds), std::move(fetches))->get().status.code();
  };
  EXPECT_EQ(code({}, {3}), Code::kInvalidArgument);
  EXPECT_EQ(code({{0, one}, {2, one}}, {3}), Code::kInvalidArgument);
  EXPECT_EQ(code({{2, one}, {2, one}}, {3}), Code::kInvalidArgument);
  EXPECT_EQ(code({{2, Tensor::scalar<int32_t>(1)}}, {3}), Code::kInvalidArgument);
  EXPECT_EQ(code({{2, one}}, {2}), Code::kInvalidArgument);
  EXPECT_EQ(code({{2, one}}, {-1}), Code::kInvalidArgument);
  EXPECT_EQ(code({{2, one}}, {3, 3}), Code::kInvalidArgument);
  EXPECT_EQ(recv(9, "nonsense")->get().status.code(), Code::kInvalidArgument);
  RendezvousKey other{receiver(), 1, device_->name(), "out", 0, 0};
  EXPECT_EQ(recv(9, other.to_string())->get().status.code(), Code::kInvalidArgument);
  EXPECT_EQ(abort(9, ok_status()).code(), Code::kInvalidArgument);
  EXPECT_TRUE(worker_->steps().empty());
  EXPECT_EQ(code({{2, one}}, {3}), Code::kOk);
}

TEST_F(WorkerTest, BadGraphsAreRefused) {
  RegisterGraphRequest request;
  request.graph_def = "these bytes are no graph";
  Status status;
  worker_->register_graph(request, [&](Result<std::string> r) { status = r.status(); });
  EXPECT_FALSE(status.ok());

  TestGraph elsewhere;
  elsewhere.builder().context().device = receiver();
  elsewhere.constant(1);
  EXPECT_EQ(add_graph(elsewhere).status().code(), Code::kInvalidArgument);

  TestGraph huge;
  huge.builder().context().device = device_->name();
  huge.fetch(huge.constant(1), INT32_MAX);
  EXPECT_EQ(add_graph(huge).status().code(), Code::kInvalidArgument);
}

TEST_F(WorkerTest, AStepIsOverAfterCleanup) {
  std::string handle = register_sum().value();
  Pending waiting = recv(3, key("never"));
  EXPECT_TRUE(cleanup(3).ok());
  EXPECT_EQ(waiting->get().status.code(), Code::kCancelled);
  EXPECT_EQ(recv(3, key("never"))->get().status.code(), Code::kAborted);
  EXPECT_EQ(run(handle, 3, feed(1), {})->get().status.code(), Code::kAborted);
  EXPECT_TRUE(abort(3, internal("late")).ok());
  EXPECT_TRUE(cleanup(3).ok());
  EXPECT_TRUE(worker_->steps().empty());
}

TEST_F(WorkerTest, OneStepRunsOnceHoweverOftenItIsAskedFor) {
  TestGraph g;
  g.builder().context().device = device_->name();
  const Expr handle = g.builder().emit(
      "VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}})[0];
  const NodeId assign =
      g.builder()
          .add("AssignVariableOp", "",
               {GraphBuilder::output(handle), GraphBuilder::output(g.feed(DType::kFloat, 0))})
          .value();
  g.builder().context().control_inputs = {assign};
  g.fetch(g.builder().emit("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}})[0], 0);
  const std::string set = add_graph(g).value();

  TestGraph h;
  h.builder().context().device = device_->name();
  const Expr same = h.builder().emit(
      "VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}})[0];
  const NodeId add =
      h.builder()
          .add("AssignAddVariableOp", "",
               {GraphBuilder::output(same), GraphBuilder::output(h.feed(DType::kFloat, 0))})
          .value();
  h.builder().context().control_inputs = {add};
  h.fetch(h.builder().emit("ReadVariableOp", {same}, {{"dtype", DType::kFloat}})[0], 0);
  const std::string increase = add_graph(h).value();

  const std::vector<std::pair<int, Tensor>> one = {{0, Tensor::scalar(1.0F)}};
  ASSERT_TRUE(run(set, 1, one, {0})->get().status.ok());
  for (int asked = 0; asked < 3; ++asked) {
    const Answer answer = run(increase, 2, one, {0})->get();
    ASSERT_TRUE(answer.status.ok());
    EXPECT_EQ(answer.response.fetches[0].item<float>(), 2);
  }
  EXPECT_EQ(run(increase, 3, one, {0})->get().response.fetches[0].item<float>(), 3);
  // Another graph is another run.
  EXPECT_EQ(run(set, 3, one, {0})->get().status.code(), Code::kAborted);
  // Not known any more.
  EXPECT_TRUE(cleanup(3).ok());
  EXPECT_EQ(run(increase, 3, one, {0})->get().status.code(), Code::kAborted);
}

TEST_F(WorkerTest, ALostCallerMayAskAgain) {
  TestGraph g;
  g.builder().context().device = device_->name();
  g.fetch(g.builder().emit("TestStuck", {}, {})[0], 0);
  const std::string waits = add_graph(g).value();
  const Ref<CancellationToken> connection = make_ref<CancellationToken>();
  const Pending lost = run(waits, 1, {}, {0}, connection);
  connection->cancel(unavailable("lost the master"));
  EXPECT_EQ(lost->get().status.code(), Code::kUnavailable);
  const Pending again = run(waits, 1, {}, {0});
  timer_->advance(bear_loss_ms_for(lost_after_ms()) * 1'000'000);
  EXPECT_FALSE(again->there());
  EXPECT_TRUE(abort(1, data_loss("disk on fire")).ok());
  EXPECT_EQ(again->get().status.code(), Code::kDataLoss);
}

TEST_F(WorkerTest, ValuesAreHandedOutAgainWhereTheyAreSmall) {
  const std::string handle = register_sum().value();
  // Asked for before it is there: who asks again takes the place.
  const Pending lost = recv(4, key("out")), again = recv(4, key("out"));
  EXPECT_EQ(lost->get().status.code(), Code::kAborted);
  EXPECT_TRUE(run(handle, 4, feed(1), {})->get().status.ok());
  EXPECT_EQ(again->get().value.tensor.item<float>(), 2);
  EXPECT_EQ(recv(4, key("out"))->get().value.tensor.item<float>(), 2);
  const Tensor large = Tensor::zeros(DType::kFloat, Shape({1 << 20})).value();
  EXPECT_TRUE(run(handle, 5, {{2, large}}, {})->get().status.ok());
  EXPECT_TRUE(recv(5, key("out"))->get().status.ok());
  EXPECT_EQ(recv(5, key("out"))->get().status.code(), Code::kAborted);
}

TEST_F(WorkerTest, AnAbortThatComesFirstIsRemembered) {
  std::string handle = register_sum().value();
  EXPECT_TRUE(abort(6, data_loss("disk on fire")).ok());
  EXPECT_EQ(recv(6, key("out"))->get().status.code(), Code::kDataLoss);
  Answer answer = run(handle, 6, feed(1), {3})->get();
  EXPECT_EQ(answer.status.code(), Code::kDataLoss);
  EXPECT_TRUE(answer.response.derived);
}

TEST_F(WorkerTest, WaitsEndWhenTheirCallIsCancelled) {
  Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  Pending waiting = recv(7, key("out"), cancel);
  EXPECT_FALSE(waiting->there());
  cancel->cancel(deadline_exceeded("too late"));
  EXPECT_EQ(waiting->get().status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(recv(7, key("other"), cancel)->get().status.code(), Code::kDeadlineExceeded);
  std::string handle = register_sum().value();
  Answer answer = run(handle, 8, feed(1), {3}, cancel)->get();
  EXPECT_EQ(answer.status.code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(answer.response.derived);
}

TEST_F(WorkerTest, AKernelsErrorIsTheStepsOwn) {
  TestGraph g;
  g.builder().context().device = device_->name();
  g.builder().emit("Assert", {g.constant(false), g.constant(7)}, {});
  std::string handle = add_graph(g).value();
  Pending waiting = recv(1, key("out"));
  Answer answer = run(handle, 1, {}, {})->get();
  EXPECT_EQ(answer.status.code(), Code::kInvalidArgument);
  EXPECT_FALSE(answer.response.derived);
  EXPECT_EQ(waiting->get().status.code(), Code::kInvalidArgument);
}

TEST_F(WorkerTest, AStoppedWorkerAnswersWithTheReason) {
  Pending waiting = recv(1, key("out"));
  worker_->shut_down(unavailable("gone"));
  EXPECT_EQ(waiting->get().status.code(), Code::kUnavailable);
  EXPECT_EQ(recv(2, key("out"))->get().status.code(), Code::kUnavailable);
  EXPECT_EQ(register_sum().status().code(), Code::kUnavailable);
  EXPECT_EQ(cleanup(1).code(), Code::kUnavailable);
  Status status;
  worker_->get_status([&](Result<WorkerStatus> r) { status = r.status(); });
  EXPECT_EQ(status.code(), Code::kUnavailable);
}

}  // namespace
}  // namespace millrace
