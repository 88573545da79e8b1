// test-labels: threads
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "millrace/base/thread_pool.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/direct_worker.h"
#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/master.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/distributed/rpc/worker_wire.h"
#include "millrace/distributed/run_answer.h"
#include "millrace/runtime/place.h"
#include "millrace/runtime/session_graph.h"

namespace millrace {
namespace {

// Loses a third of the calls of steps: before they arrive, while they are answered, or their
// answers.
class LossyChannel final : public Channel {
 public:
  LossyChannel(Ref<CallHandler> handler, unsigned seed)
      : handler_(std::move(handler)), random_(seed) {}

  std::string peer() const override { return "the task"; }
  // Workers know their channels, and channels their workers: until now.
  void close() {
    MutexLock lock(mu_);
    handler_ = nullptr;
  }

  void call(std::string_view method, Message request, Ref<CancellationToken> cancel,
            CallDone done) override {
    const int fate =
        method == worker_wire::kRunGraph || method == worker_wire::kRecvTensor ? draw() : kArrives;
    if (cancel && cancel->cancelled()) return done(cancel->status(), Message());
    Ref<CallHandler> to;
    {
      MutexLock lock(mu_);
      to = handler_;
    }
    if (!to) return done(unavailable("the test is over"), Message());
    ThreadPool::global().schedule([handler = std::move(to), method = std::string(method), fate,
                                   request = std::move(request), cancel,
                                   done = std::move(done)]() mutable {
      if (fate == kNeverArrives) return done(unavailable("lost the task"), Message());
      const Ref<CancellationToken> token =
          cancel ? CancellationToken::make_child(cancel) : make_ref<CancellationToken>();
      if (fate == kArrives) {
        return handler->handle(method, std::move(request), token, std::move(done));
      }
      handler->handle(method, std::move(request), token, [](const Status&, const Message&) {});
      token->cancel(unavailable("lost the caller"));  // when it was answered, that was lost
      done(unavailable("lost the task"), Message());
    });
  }

 private:
  static constexpr int kNeverArrives = 0, kLosesAnswer = 1, kArrives = 2;

  int draw() {
    MutexLock lock(mu_);
    const unsigned number = random_() % 6;
    return number == 0 ? kNeverArrives : number == 1 ? kLosesAnswer : kArrives;
  }

  Mutex mu_;
  Ref<CallHandler> handler_ MR_GUARDED_BY(mu_);
  std::minstd_rand random_ MR_GUARDED_BY(mu_);
};

// A variable on task 1 is increased by what task 0 makes of its value; steps that end well count
// exactly once, those that fail once or not at all. `own`: task 0 is of the master's process, so
// that a step is two calls; otherwise tasks ask each other.
void expect_updates_count_once(bool own) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  const Ref<WorkerCache> workers = make_ref<WorkerCache>();
  std::vector<Ref<Worker>> tasks;
  std::vector<Ref<LossyChannel>> channels;
  for (const std::string_view task : {kTask0, kTask1}) {
    std::vector<Ref<Device>> devices = make_cpu_devices(DeviceName::parse(task).value(), 1).value();
    tasks.push_back(Worker::create(std::string(task), std::move(devices), workers).value());
    channels.push_back(make_ref<LossyChannel>(make_worker_service(tasks.back()), seed));
    ASSERT_TRUE(workers->add(std::string(task), make_remote_worker(channels.back())).ok());
  }
  const Ref<WorkerCache> ways = make_ref<WorkerCache>();
  const Ref<WorkerInterface> direct = make_direct_worker([worker = tasks[0]] { return worker; });
  ASSERT_TRUE(ways->add(std::string(kTask0), own ? direct : *workers->find(kTask0)).ok());
  ASSERT_TRUE(ways->add(std::string(kTask1), *workers->find(kTask1)).ok());
  TestGraph g;
  GraphBuilder& b = g.builder();
  const auto on = [&](std::string_view task) { b.context().device = std::string(task); };
  on(kTask1);
  const Expr handle =
      b.emit("VarHandleOp", {},
             {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}, {"shared_name", "v"}})[0];
  const auto add = [&](std::string_view op, Expr value) {
    const std::vector<Output> inputs = {GraphBuilder::output(handle), GraphBuilder::output(value)};
    return b.add(op, "", inputs).value();
  };
  const NodeId init = add("AssignVariableOp", b.constant(Tensor::scalar(0.0F)));
  const Expr before = b.emit("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}})[0];
  on(kTask0);
  const Expr fed = b.emit("Placeholder", {}, {{"dtype", DType::kFloat}})[0];
  const Expr zero = b.emit("Sub", {before, before}, {})[0];
  const Expr one = b.emit("Add", {fed, zero}, {})[0];
  on(kTask1);
  const NodeId update = add("AssignAddVariableOp", one);
  b.context().control_inputs = {update};
  const Expr read = b.emit("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}})[0];
  ASSERT_TRUE(b.status().ok()) << b.status().to_string();

  const Ref<SessionBackend> master =
      make_master_backend(ways, {.task = std::string(kTask0)}).value();
  SessionGraph view(Ref<Graph>(&g.graph()), master->devices(), PlaceOptions());
  ASSERT_TRUE(view.extend().ok());
  const auto prepare = [&](const Signature& signature) {
    Subgraph pruned = view.prune(signature).value();
    MR_CHECK_OK(place(pruned, master->devices(), PlaceOptions()));
    return master->prepare(pruned, signature, "s").value();
  };
  const auto run = [](const Ref<Executable>& executable, std::vector<Tensor> feeds, size_t count,
                      std::vector<Tensor>& fetches) {
    const Ref<Step> step = Step::make_shared(1);
    step->hold_feeds(std::move(feeds));
    step->fetches.resize(count);
    executable->run_async(step, [](Step&) {});
    step->wait();
    fetches = std::move(step->fetches);
    return step->status();
  };
  const std::string fed_name = g.graph().output_name(GraphBuilder::output(fed));
  const Ref<Executable> initialise =
      prepare({.targets = {std::string(g.graph().node(init).name())}});
  const Ref<Executable> step = prepare(
      {.feeds = {fed_name}, .fetches = {g.graph().output_name(GraphBuilder::output(read))}});
  std::vector<Tensor> fetches;
  while (!run(initialise, {}, 0, fetches).ok()) continue;

  int acknowledged = 0, failed = 0;
  float last = 0;
  for (int i = 0; i < 60; ++i) {
    if (!run(step, {Tensor::scalar(1.0F)}, 1, fetches).ok()) {
      ++failed;
      continue;
    }
    ++acknowledged;
    last = fetches[0].item<float>();
    EXPECT_GE(last, static_cast<float>(acknowledged));
    EXPECT_LE(last, static_cast<float>(acknowledged + failed));
  }
  // Each is lost with a chance of a third, and four times in a row with one of 81.
  EXPECT_GT(acknowledged, 30);
  master->close("s");
  for (const Ref<Worker>& task : tasks) task->shut_down(cancelled("the test is over"));
  for (const Ref<LossyChannel>& channel : channels) channel->close();
}

TEST(LostConnection, UpdatesCountOnceThoughTasksAskAgain) { expect_updates_count_once(false); }
TEST(LostConnection, UpdatesCountOnceThoughTheMasterCallsAgain) { expect_updates_count_once(true); }

// Who asks, who is lost, who asks again and the end of the run, all at once.
TEST(LostConnection, EveryoneIsAnsweredOnceWhoeverComesFirst) {
  for (int round = 0; round < 500; ++round) {
    const Ref<RunAnswer> answer = make_ref<RunAnswer>(real_timer(), 1'000'000);
    const Ref<CancellationToken> first = make_ref<CancellationToken>(),
                                 second = make_ref<CancellationToken>();
    std::atomic<int> answered{0};
    const auto done = [&](const Status&, const RunGraphResponse&) { ++answered; };
    answer->ask(first, done);
    std::vector<std::thread> threads;
    threads.emplace_back([&] { first->cancel(unavailable("lost")); });
    threads.emplace_back([&] { answer->ask(second, done); });
    threads.emplace_back(
        [&] { second->cancel(round % 2 == 0 ? cancelled("enough") : unavailable("lost")); });
    threads.emplace_back([&] { answer->finish(ok_status(), {}); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(answered.load(), 2);
  }
}

}  // namespace
}  // namespace millrace
