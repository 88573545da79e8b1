#include "millrace/distributed/rpc/worker_wire.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "millrace/distributed/rpc/remote_worker.h"

namespace millrace {
namespace {

namespace wire = worker_wire;

RunGraphRequest some_run() {
  RunGraphRequest request;
  request.graph_handle = "g1";
  request.step_id = int64_t{1} << 55;
  request.feeds.emplace_back(0, Tensor::vector<float>({1, 2, 3}));
  request.feeds.emplace_back(4, Tensor::vector<std::string>({"a", ""}));
  request.feeds.emplace_back(2, Tensor::scalar(true));
  request.fetches = {3, 1};
  request.max_threads = 2;
  request.trace = true;
  request.over_steps = {5, -6};
  request.sends = {"a", "b"};
  request.given = {"c"};
  Value dead;
  dead.set_dead();
  request.brought = {{"d", Value::of(Tensor::scalar(5.0F))}, {"e", dead}};
  request.in_pieces = true;
  request.early = {"f"};
  request.continues = true;
  return request;
}

TEST(WorkerWire, RunsArriveAsTheyWere) {
  const RunGraphRequest sent = some_run();
  const RunGraphRequest got = wire::read_run_graph_call(wire::run_graph_call(sent).value()).value();
  EXPECT_EQ(got.graph_handle, sent.graph_handle);
  EXPECT_EQ(got.step_id, sent.step_id);
  EXPECT_EQ(got.fetches, sent.fetches);
  EXPECT_EQ(got.max_threads, 2);
  EXPECT_TRUE(got.trace);
  EXPECT_EQ(got.over_steps, sent.over_steps);
  EXPECT_EQ(got.sends, sent.sends);
  EXPECT_EQ(got.given, sent.given);
  EXPECT_TRUE(got.in_pieces);
  EXPECT_EQ(got.early, sent.early);
  EXPECT_TRUE(got.continues);
  ASSERT_EQ(got.brought.size(), 2u);
  EXPECT_EQ(got.brought[0].first, "d");
  EXPECT_EQ(got.brought[0].second.tensor.item<float>(), 5);
  EXPECT_TRUE(got.brought[1].second.dead());
  ASSERT_EQ(got.feeds.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got.feeds[i].first, sent.feeds[i].first);
    EXPECT_TRUE(bit_equal(got.feeds[i].second, sent.feeds[i].second));
  }
}

TEST(WorkerWire, AnswersArriveAsTheyWere) {
  RunGraphResponse sent;
  sent.fetches = {Tensor::scalar<int64_t>(7)};
  sent.events = {{.kind = TraceEvent::Kind::kCopy,
                  .thread = 3,
                  .node = "n",
                  .peer = "p",
                  .tensor = "t",
                  .end_ns = 9}};
  sent.received_ns = 11;
  sent.answered_ns = 12;
  sent.prompt = true;
  sent.waits_for_peers_only = true;
  sent.goes_on = true;
  sent.sent = {Value::of(Tensor::vector<float>({1, 2})), Value()};
  sent.sent[1].set_dead();
  RunGraphResponse got;
  EXPECT_TRUE(wire::read_run_graph_answer(wire::run_graph_answer(ok_status(), sent), got).ok());
  EXPECT_TRUE(bit_equal(got.fetches.at(0), sent.fetches[0]));
  EXPECT_EQ(got.events.at(0).kind, TraceEvent::Kind::kCopy);
  EXPECT_EQ(got.events[0].end_ns, 9);
  EXPECT_EQ(got.events[0].peer, "p");
  EXPECT_EQ(got.events[0].tensor, "t");
  EXPECT_EQ(got.received_ns, 11);
  EXPECT_EQ(got.answered_ns, 12);
  EXPECT_TRUE(got.prompt);
  EXPECT_TRUE(got.waits_for_peers_only);
  EXPECT_TRUE(got.goes_on);
  ASSERT_EQ(got.sent.size(), 2u);
  EXPECT_TRUE(bit_equal(got.sent[0].tensor, sent.sent[0].tensor));
  EXPECT_TRUE(got.sent[1].dead());

  got = {};
  sent.derived = true;
  const Message failed = wire::run_graph_answer(aborted("because"), sent);
  EXPECT_EQ(wire::read_run_graph_answer(failed, got), aborted("because"));
  EXPECT_TRUE(got.derived);
  EXPECT_TRUE(got.fetches.empty());
  EXPECT_TRUE(got.sent.empty());
}

KeepSessionRequest some_beat() {
  return {.session = "s",
          .lease_ms = 6000,
          .incarnation = ~uint64_t{0},
          .over_steps = {3, -4},
          .over_graphs = {"g"}};
}

TEST(WorkerWire, SignsOfLifeArriveAsTheyWere) {
  const KeepSessionRequest sent = some_beat();
  const auto got = wire::read_keep_session_call(wire::keep_session_call(sent)).value();
  EXPECT_EQ(got.session, sent.session);
  EXPECT_EQ(got.lease_ms, sent.lease_ms);
  EXPECT_EQ(got.incarnation, sent.incarnation);
  EXPECT_EQ(got.over_steps, sent.over_steps);
  EXPECT_EQ(got.over_graphs, sent.over_graphs);
  RegisterGraphRequest graph;
  graph.lease_ms = 7;
  EXPECT_EQ(wire::read_register_graph_call(wire::register_graph_call(graph)).value().lease_ms, 7);
}

TEST(WorkerWire, WhatATaskDoesArrivesAsItWas) {
  EXPECT_EQ(wire::read_get_activity_call(wire::get_activity_call(9)).value(), 9);
  WorkerActivity sent;
  sent.sessions = {{"s", 12, 3}, {"here", -1, 0}};
  sent.steps = {{5, "s", {"a", "b"}, {"", "defined at x.py:1"}, 77}};
  sent.clock_ns = 1;
  sent.up_ms = 2;
  sent.steps_begun = 3;
  sent.steps_ended = 4;
  sent.steps_failed = 5;
  sent.transfers = {{"p", "tensor", 6, 7}};
  sent.queues = {{"d", "c", "q", 8, -1, true}};
  const auto got = wire::read_get_activity_answer(wire::get_activity_answer(sent)).value();
  ASSERT_EQ(got.sessions.size(), 2u);
  EXPECT_EQ(got.sessions[0].name, "s");
  EXPECT_EQ(got.sessions[0].lease_left_ms, 12);
  EXPECT_EQ(got.sessions[0].graphs, 3);
  EXPECT_EQ(got.sessions[1].lease_left_ms, -1);
  ASSERT_EQ(got.steps.size(), 1u);
  EXPECT_EQ(got.steps[0].id, 5);
  EXPECT_EQ(got.steps[0].session, "s");
  EXPECT_EQ(got.steps[0].defined, sent.steps[0].defined);
  EXPECT_EQ(got.steps[0].running_ms, 77);
  EXPECT_EQ(std::tie(got.clock_ns, got.up_ms), std::tie(sent.clock_ns, sent.up_ms));
  EXPECT_EQ(std::tie(got.steps_begun, got.steps_ended, got.steps_failed),
            std::tie(sent.steps_begun, sent.steps_ended, sent.steps_failed));
  ASSERT_EQ(got.transfers.size(), 1u);
  EXPECT_EQ(got.transfers[0].peer, "p");
  EXPECT_EQ(got.transfers[0].kind, "tensor");
  EXPECT_EQ(got.transfers[0].received_bytes, 6);
  EXPECT_EQ(got.transfers[0].sent_bytes, 7);
  ASSERT_EQ(got.queues.size(), 1u);
  EXPECT_EQ(got.queues[0].device, "d");
  EXPECT_EQ(got.queues[0].container, "c");
  EXPECT_EQ(got.queues[0].name, "q");
  EXPECT_EQ(got.queues[0].size, 8);
  EXPECT_EQ(got.queues[0].capacity, -1);
  EXPECT_TRUE(got.queues[0].closed);
  EXPECT_EQ(got.steps[0].waits_for, sent.steps[0].waits_for);
}

TEST(WorkerWire, ValuesMayBeDead) {
  Value dead;
  dead.set_dead();
  const Message message = wire::recv_tensor_answer(dead).value();
  EXPECT_TRUE(wire::read_recv_tensor_answer(message).value().dead());
  EXPECT_EQ(wire::recv_tensor_answer(Value()).status().code(), Code::kUnimplemented);
}

TEST(WorkerWire, TensorsThatContradictThemselvesAreRefused) {
  const Message good = wire::run_graph_call(some_run()).value();
  const auto code = [](const Message& message) {
    return wire::read_run_graph_call(message).status().code();
  };
  Message none = good;
  none.parts.clear();
  EXPECT_EQ(code(none), Code::kInvalidArgument);
  Message shorter = good;
  shorter.parts[0].size -= 1;
  EXPECT_EQ(code(shorter), Code::kInvalidArgument);
  Message no_bool = good;
  no_bool.parts[1].buffer = Buffer::allocate(DType::kUInt8, 1, cpu_allocator()).value();
  *static_cast<unsigned char*>(no_bool.parts[1].buffer->mutable_data()) = 2;
  EXPECT_EQ(code(no_bool), Code::kInvalidArgument);
}

// A worker that answers everything, so that what arrives is told from what does not.
class Agreeable final : public WorkerInterface {
 public:
  void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) override {
    done(WorkerStatus());
  }
  void register_graph(RegisterGraphRequest,
                      UniqueFunction<void(Result<std::string>)> done) override {
    done(std::string("h"));
  }
  void deregister_graph(std::string, StatusDone done) override { done(ok_status()); }
  void run_graph(RunGraphRequest, Ref<CancellationToken>,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override {
    done(ok_status(), RunGraphResponse());
  }
  void recv_tensor(RecvTensorRequest, Ref<CancellationToken>,
                   UniqueFunction<void(Status, Value)> done) override {
    done(ok_status(), Value::of(Tensor::scalar(1.0F)));
  }
  void give_tensor(int64_t, std::string, Value, StatusDone done) override { done(ok_status()); }
  void abort_step(int64_t, Status, StatusDone done) override { done(ok_status()); }
  void cleanup_step(int64_t, StatusDone done) override { done(ok_status()); }
  void keep_session(KeepSessionRequest, StatusDone done) override { done(ok_status()); }
  void get_activity(int64_t, UniqueFunction<void(Result<WorkerActivity>)> done) override {
    done(WorkerActivity());
  }
  void delete_session(std::string, StatusDone done) override { done(ok_status()); }
  void reset(std::vector<std::string>, StatusDone done) override { done(ok_status()); }
  void join_group(JoinGroupRequest, Ref<CancellationToken>,
                  UniqueFunction<void(Result<GroupView>)> done) override {
    done(GroupView{.epoch = 7, .number = 1, .members = {"a", "b"}});
  }
  void recv_chunk(RecvChunkRequest, Ref<CancellationToken>,
                  UniqueFunction<void(Result<Tensor>)> done) override {
    done(Tensor::vector({1.0F, 2.0F}));
  }
  void end_group(EndGroupRequest, StatusDone done) override { done(ok_status()); }
};

TEST(WorkerWire, ChangedBytesAreAnsweredOnce) {
  const Ref<CallHandler> service = make_worker_service(make_ref<Agreeable>());
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  const std::pair<std::string_view, Message> calls[] = {
      {wire::kGetStatus, Message()},
      {wire::kRegisterGraph,
       wire::register_graph_call({.session = "s", .graph_def = "g", .incarnation = 1})},
      {wire::kDeregisterGraph, wire::deregister_graph_call("h")},
      {wire::kRunGraph, wire::run_graph_call(some_run()).value()},
      {wire::kRecvTensor, wire::recv_tensor_call({.step_id = 1, .key = "k"})},
      {wire::kGiveTensor,
       wire::give_tensor_call({1, "k", Value::of(Tensor::scalar(1.0F))}).value()},
      {wire::kAbortStep, wire::abort_step_call({1, aborted("x")})},
      {wire::kCleanupStep, wire::cleanup_step_call(1)},
      {wire::kKeepSession, wire::keep_session_call(some_beat())},
      {wire::kGetActivity, wire::get_activity_call(7)},
      {wire::kDeleteSession, wire::delete_session_call("s")},
      {wire::kReset, wire::reset_call({"c"})},
      {wire::kJoinGroup, wire::join_group_call({.group_key = 1, .group_size = 2, .member = "m"})},
      {wire::kRecvChunk, wire::recv_chunk_call({.group_key = 1, .epoch = 7, .what = "w"})},
      {wire::kEndGroup, wire::end_group_call({1, 7, aborted("x")})},
      {"/millrace.Worker/Dance", Message()},
  };
  for (int round = 0; round < 2000; ++round) {
    auto [method, message] = calls[random() % std::size(calls)];
    for (unsigned i = random() % 4; i > 0 && !message.fields.empty(); --i) {
      message.fields[random() % message.fields.size()] = static_cast<char>(random());
    }
    int answers = 0;
    service->handle(method, std::move(message), make_ref<CancellationToken>(),
                    [&](const Status&, const Message&) { ++answers; });
    ASSERT_EQ(answers, 1) << method;
  }
}

}  // namespace
}  // namespace millrace
