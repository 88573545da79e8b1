// test-labels: threads
#include "millrace/distributed/remote_executable.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/direct_worker.h"
#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/master.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/distributed/worker.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/queue/queue.h"

namespace millrace {
namespace {

// Calls a handler of this process, and counts by method.
class CountingChannel final : public Channel {
 public:
  explicit CountingChannel(Ref<CallHandler> handler) : handler_(std::move(handler)) {}

  std::string peer() const override { return "a task"; }
  void call(std::string_view method, Message request, Ref<CancellationToken> cancel,
            CallDone done) override {
    {
      MutexLock lock(mu_);
      ++counts_[std::string(method.substr(method.rfind('/') + 1))];
    }
    if (!cancel) cancel = make_ref<CancellationToken>();
    handler_->handle(method, std::move(request), std::move(cancel), std::move(done));
  }

  int count(const std::string& method) {
    MutexLock lock(mu_);
    const auto it = counts_.find(method);
    return it == counts_.end() ? 0 : it->second;
  }
  std::map<std::string, int> take_counts() {
    MutexLock lock(mu_);
    return std::exchange(counts_, {});
  }

 private:
  const Ref<CallHandler> handler_;
  Mutex mu_;
  std::map<std::string, int> counts_ MR_GUARDED_BY(mu_);
};

// The session's own task is of this process, task 1 is reached by messages.
class RemoteExecutableTest : public testing::Test {
 protected:
  RemoteExecutableTest() {
    own_ = worker(kTask0, peers_, own_device_);
    other_ = worker(kTask1, others_peers_, other_device_);
    channel_ = make_ref<CountingChannel>(make_worker_service(other_));
    const Ref<WorkerInterface> remote = make_remote_worker(channel_);
    EXPECT_TRUE(peers_->add(std::string(kTask1), remote).ok());
    const Ref<WorkerCache> workers = make_ref<WorkerCache>();
    EXPECT_TRUE(workers->add(std::string(kTask1), remote).ok());
    EXPECT_TRUE(
        workers->add(std::string(kTask0), make_direct_worker([w = own_] { return w; })).ok());
    MasterOptions options;
    options.task = std::string(kTask0);
    options.timer = timer_;
    backend_ = make_master_backend(workers, options).value();
  }
  ~RemoteExecutableTest() override {
    backend_->close("s");
    own_->shut_down(cancelled("the test is over"));
    other_->shut_down(cancelled("the test is over"));
  }

  Ref<Worker> worker(std::string_view task, Ref<WorkerCache> peers, Ref<Device>& device) {
    const auto devices = make_cpu_devices(DeviceName::parse(task).value(), 1).value();
    device = devices[0];
    return Worker::create(std::string(task), devices, std::move(peers), timer_).value();
  }
  void on(std::string_view task) {
    graph_.builder().context().device = str_cat(task, "/device:CPU:0");
  }
  Expr one() { return graph_.builder().constant(Tensor::scalar(1.0F)); }
  void let_other_ask() {
    // Without a reference: the two would hold each other.
    const Ref<WorkerInterface> own = make_direct_worker([this] { return own_; });
    asks_ = make_ref<CountingChannel>(make_worker_service(own));
    ASSERT_TRUE(others_peers_->add(std::string(kTask0), make_remote_worker(asks_)).ok());
  }
  Expr checked(std::string_view op, std::vector<Expr> inputs) {
    return call("CheckNumerics", {call(op, inputs)}, {{"message", "no number"}});
  }
  // What training does: a variable on task 1 is fed, and read on task 0, which makes a gradient of
  // it by an op, with more inputs perhaps; made into another by an op on task 1, that is added to
  // the variable, whose value is fetched then. All once, if at all. Where it reads ahead, the
  // gradient is made of what was fed instead, and waits for what is read.
  void prepare_update(std::string_view own_op, std::string_view other_op,
                      std::vector<Expr> more = {}, bool ahead = false) {
    GraphBuilder& b = graph_.builder();
    const auto add = [&](std::string_view op, Expr handle, Expr value) {
      return b.add(op, "", {GraphBuilder::output(handle), GraphBuilder::output(value)}).value();
    };
    const auto read_after = [&](NodeId node, Expr handle) {
      b.context().control_inputs = {node};
      const Expr value = b.emit("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}})[0];
      b.context().control_inputs = {};
      return value;
    };
    on(kTask1);
    const Expr handle = b.emit(
        "VarHandleOp", {},
        {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}, {"shared_name", "v"}})[0];
    const Expr fed = graph_.feed(DType::kFloat, 0);
    const Expr before = read_after(add("AssignVariableOp", handle, fed), handle);
    on(kTask0);
    std::vector<Expr> inputs = {ahead ? fed : before};
    inputs.insert(inputs.end(), more.begin(), more.end());
    const Expr kept = call("Identity", {before});
    if (ahead) b.context().control_inputs = {GraphBuilder::output(kept).node};
    const Expr gradient = checked(own_op, inputs);
    b.context().control_inputs = {};
    on(kTask1);
    const Expr after =
        read_after(add("AssignAddVariableOp", handle, checked(other_op, {gradient})), handle);
    on(kTask0);
    prepare(call("Identity", {after}));
  }
  Status failure(float fed) {
    const Ref<Step> step = Step::make_shared(1);
    step->hold_feeds({Tensor::scalar(fed)});
    step->fetches.resize(1);
    executable_->run_async(step, [](Step&) {});
    step->wait();
    return step->status();
  }
  // Prepares what has fetch 0 and, when fed, feed 0.
  void prepare(Expr fetched) {
    on(kTask0);
    graph_.fetch(fetched, 0);
    ASSERT_TRUE(graph_.builder().status().ok()) << graph_.builder().status().to_string();
    Result<Ref<Executable>> made =
        backend_->prepare(Subgraph::from_graph(graph_.graph()), {{}, {"fetch:0"}, {}}, "s");
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    executable_ = *std::move(made);
  }
  Tensor run(float fed) {
    const Ref<Step> step = Step::make_shared(1);
    step->hold_feeds({Tensor::scalar(fed)});
    step->fetches.resize(1);
    executable_->run_async(step, [](Step&) {});
    step->wait();
    EXPECT_TRUE(step->status().ok()) << step->status().to_string();
    return step->status().ok() ? step->fetches[0] : Tensor::scalar(0.0F);
  }

  Ref<ManualTimer> timer_ = make_ref<ManualTimer>();
  // Nobody, unless a test says so: task 1 cannot ask for anything.
  const Ref<WorkerCache> others_peers_ = make_ref<WorkerCache>();
  const Ref<WorkerCache> peers_ = make_ref<WorkerCache>();
  Ref<Device> own_device_, other_device_;
  Ref<Worker> own_, other_;
  Ref<CountingChannel> channel_;  // to task 1
  Ref<CountingChannel> asks_;     // from there
  Ref<SessionBackend> backend_;
  TestGraph graph_;
  Ref<Executable> executable_;
};

using Counts = std::map<std::string, int>;

TEST_F(RemoteExecutableTest, AStepThatWaitsForNothingIsOneCall) {
  on(kTask1);
  const Expr sum =
      call("Add", {graph_.feed(DType::kFloat, 0), graph_.builder().constant(Tensor::scalar(1.0F))});
  on(kTask0);
  prepare(call("Neg", {sum}));
  EXPECT_EQ(run(1).item<float>(), -2);
  channel_->take_counts();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(static_cast<float>(i)).item<float>(), -i - 1);
  EXPECT_EQ(channel_->take_counts(), (Counts{{"RunGraph", 3}}));
  EXPECT_TRUE(own_->steps().empty());
  EXPECT_EQ(other_->steps().size(), 1u) << "the last one's end is told with what comes next";
  timer_->advance(int64_t{60'000'000'000});
  EXPECT_TRUE(other_->steps().empty());
}

TEST_F(RemoteExecutableTest, LargeTensorsAreAskedFor) {
  on(kTask1);
  const Expr large =
      call("Fill", {int32_vector(graph_.builder(), {1 << 20}), graph_.feed(DType::kFloat, 0)});
  on(kTask0);
  prepare(call("Max", {large, int32_vector(graph_.builder(), {0})}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(static_cast<float>(i)).item<float>(), i);
  channel_->take_counts();
  EXPECT_EQ(run(7).item<float>(), 7);
  EXPECT_EQ(channel_->take_counts(), (Counts{{"RunGraph", 1}, {"RecvTensor", 1}}));
}

TEST_F(RemoteExecutableTest, WhatTheOwnTaskComputesComesWithTheCall) {
  on(kTask0);
  const Expr computed = call("Neg", {graph_.feed(DType::kFloat, 0)});
  on(kTask1);
  const Expr sum = call("Add", {computed, one()});
  on(kTask0);
  prepare(call("Neg", {sum}));
  EXPECT_EQ(run(1).item<float>(), 0);
  channel_->take_counts();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(static_cast<float>(i)).item<float>(), i - 1);
  EXPECT_EQ(channel_->take_counts(), (Counts{{"RunGraph", 3}}));
  EXPECT_TRUE(own_->steps().empty());
}

// Keys are hashed, and looked up in the table of the task that has their part: here task 1 has the
// odd ones, of which there are none in its table.
TEST_F(RemoteExecutableTest, ALookupByHashIsOneCall) {
  GraphBuilder& b = graph_.builder();
  on(kTask0);
  const Expr keys = call("Reshape", {graph_.feed(DType::kFloat, 0), int32_vector(b, {1})});
  const Expr hashes =
      call("StringToHashBucketFast", {call("AsString", {keys})}, {{"num_buckets", int64_t{100}}});
  const Expr parts = call("FloorMod", {hashes, b.constant(Tensor::scalar<int64_t>(2))});
  const std::vector<Expr> shards =
      b.emit("DynamicPartition", {hashes, call("Cast", {parts}, {{"DstT", DType::kInt32}})},
             {{"num_partitions", int64_t{2}}});
  on(kTask1);
  const Expr table = b.emit(
      "MutableHashTableV2", {},
      {{"key_dtype", DType::kInt64}, {"value_dtype", DType::kFloat}, {"shared_name", "t"}})[0];
  const Expr rows = call("LookupTableFindV2", {table, shards[1], b.constant(Tensor::scalar(7.0F))});
  on(kTask0);
  prepare(call("Sum", {rows, int32_vector(b, {0})}));
  const auto expect_lookup = [&](float key) {
    const float found = run(key).item<float>();
    EXPECT_TRUE(found == 0 || found == 7) << found;
    return found == 7;
  };
  expect_lookup(1);
  channel_->take_counts();
  int odd = 0;
  for (int i = 0; i < 20; ++i) odd += expect_lookup(static_cast<float>(i)) ? 1 : 0;
  EXPECT_EQ(channel_->take_counts(), (Counts{{"RunGraph", 20}}));
  EXPECT_GT(odd, 0);
  EXPECT_LT(odd, 20);
}

TEST_F(RemoteExecutableTest, WhatNeedsAnAnswerIsNotWaitedForBeforeTheCall) {
  let_other_ask();
  on(kTask1);
  const Expr first = call("Add", {graph_.feed(DType::kFloat, 0), one()});
  on(kTask0);
  const Expr back = call("Neg", {first});
  on(kTask1);
  const Expr second = call("Add", {back, one()});
  on(kTask0);
  prepare(call("Neg", {second}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(static_cast<float>(i)).item<float>(), i);
}

TEST_F(RemoteExecutableTest, AStepThatUpdatesWhatItReadIsTwoCalls) {
  let_other_ask();
  prepare_update("Sqrt", "Neg");
  EXPECT_EQ(run(4).item<float>(), 2);
  channel_->take_counts();
  EXPECT_EQ(asks_->take_counts(), (Counts{{"RecvTensor", 1}})) << "nothing is known of it yet";
  for (const float root : {1.0F, 2.0F, 3.0F}) {
    EXPECT_EQ(run(root * root).item<float>(), root * root - root);
  }
  EXPECT_EQ(channel_->take_counts(), (Counts{{"RunGraph", 6}}));
  EXPECT_EQ(asks_->take_counts(), Counts());
  EXPECT_EQ(other_->activity(0).steps_begun, 4);
  EXPECT_TRUE(own_->steps().empty());
  EXPECT_EQ(other_->steps().size(), 1u) << "the last one's end is told with what comes next";
}

// What is read is for a later step: the gradient does not need it, but waits for it.
TEST_F(RemoteExecutableTest, AStepThatReadsAheadIsTwoCalls) {
  let_other_ask();
  prepare_update("Sqrt", "Neg", {}, /*ahead=*/true);
  EXPECT_EQ(run(4).item<float>(), 2);
  channel_->take_counts();
  asks_->take_counts();
  for (const float root : {1.0F, 2.0F, 3.0F}) {
    EXPECT_EQ(run(root * root).item<float>(), root * root - root);
  }
  EXPECT_EQ(channel_->take_counts(), (Counts{{"RunGraph", 6}}));
  EXPECT_EQ(asks_->take_counts(), Counts());
}

TEST_F(RemoteExecutableTest, AnErrorBetweenTwoCallsEndsTheStepOnAllTasks) {
  let_other_ask();
  prepare_update("Sqrt", "Neg");
  for (const float fed : {1.0F, 1.0F}) EXPECT_EQ(run(fed).item<float>(), 0);
  const Status own = failure(-1);
  EXPECT_EQ(own.code(), Code::kInvalidArgument) << own.to_string();
  EXPECT_NE(own.message().find("no number"), std::string::npos) << own.to_string();
  EXPECT_TRUE(own_->steps().empty());
  EXPECT_TRUE(other_->steps().empty());
  EXPECT_EQ(run(4).item<float>(), 2);
}

TEST_F(RemoteExecutableTest, AnErrorOfTheSecondCallIsTheSteps) {
  let_other_ask();
  prepare_update("Neg", "Sqrt");
  for (const float fed : {-1.0F, -4.0F}) EXPECT_EQ(run(fed).item<float>(), fed + std::sqrt(-fed));
  const Status other = failure(4);
  EXPECT_EQ(other.code(), Code::kInvalidArgument) << other.to_string();
  EXPECT_NE(other.message().find("no number"), std::string::npos) << other.to_string();
  EXPECT_TRUE(own_->steps().empty());
  EXPECT_TRUE(other_->steps().empty());
  EXPECT_EQ(run(-9).item<float>(), -6);
}

// What task 0 sends back waits for a queue, so the second call is made without it.
TEST_F(RemoteExecutableTest, WhatIsNotThereForTheSecondCallIsGivenLater) {
  let_other_ask();
  GraphBuilder& b = graph_.builder();
  const std::vector<DType> types = {DType::kFloat};
  on(kTask0);
  const Expr queue =
      b.emit("FIFOQueueV2", {},
             {{"component_types", types}, {"capacity", int64_t{4}}, {"shared_name", "q"}})[0];
  const Expr dequeued = b.emit("QueueDequeueV2", {queue}, {{"component_types", types}})[0];
  prepare_update("Mul", "Neg", {dequeued});
  const auto enqueue = [&](float value) {
    const Ref<Queue> found =
        own_device_->resources()
            .lookup<Queue>(std::string(ResourceManager::kDefaultContainer), "q")
            .value();
    found->enqueue({{Tensor::scalar(value)}}, nullptr,
                   [found](const Status& status, const std::vector<QueueElement>&) {
                     EXPECT_TRUE(status.ok()) << status.to_string();
                   });
  };
  const auto wait_for = [&](const std::string& method, int count) {
    while (channel_->count(method) < count) std::this_thread::yield();
  };
  const auto run_with = [&](float fed, float later, int64_t advance_ns) {
    channel_->take_counts();
    std::thread gives([&] {
      wait_for("RunGraph", 1);
      const auto dequeues = [&] {
        const std::vector<std::string> steps = own_->steps();
        return !steps.empty() && steps[0].find("QueueDequeueV2 ") != std::string::npos;
      };
      while (!dequeues()) std::this_thread::yield();
      if (advance_ns > 0) {
        timer_->advance(advance_ns);
        wait_for("RunGraph", 2);
      }
      enqueue(later);
    });
    const float got = run(fed).item<float>();
    gives.join();
    return got;
  };
  EXPECT_EQ(run_with(3, 2, 0), -3);
  asks_->take_counts();
  EXPECT_EQ(run_with(4, 2, 10'000'000), -4);
  EXPECT_EQ(channel_->take_counts(), (Counts{{"GiveTensor", 1}, {"RunGraph", 2}}));
  EXPECT_EQ(asks_->take_counts(), Counts());
  EXPECT_EQ(run_with(5, 3, 0), -10);
  EXPECT_EQ(asks_->take_counts(), (Counts{{"RecvTensor", 1}})) << "it asks itself now";
}

// Task 0 dequeues, for task 1, what it enqueues once task 1 has answered.
TEST_F(RemoteExecutableTest, WhatWaitsForWhoIsNotCalledIsNotWaitedForLong) {
  let_other_ask();
  GraphBuilder& b = graph_.builder();
  const std::vector<DType> types = {DType::kFloat};
  on(kTask1);
  const Expr answer = call("Add", {graph_.feed(DType::kFloat, 0), one()});
  on(kTask0);
  const Expr queue =
      b.emit("FIFOQueueV2", {}, {{"component_types", types}, {"capacity", int64_t{4}}})[0];
  ASSERT_TRUE(b.add("QueueEnqueueV2", "",
                    {GraphBuilder::output(queue), GraphBuilder::output(answer)},
                    {{"Tcomponents", types}})
                  .ok());
  const Expr dequeued = b.emit("QueueDequeueV2", {queue}, {{"component_types", types}})[0];
  on(kTask1);
  const Expr sum = call("Add", {dequeued, one()});
  on(kTask0);
  prepare(call("Neg", {sum}));
  std::thread passes([&] {
    const auto dequeues = [&] {
      const std::vector<std::string> steps = own_->steps();
      return !steps.empty() && steps[0].find("QueueDequeueV2 ") != std::string::npos;
    };
    while (!dequeues()) std::this_thread::yield();
    timer_->advance(10'000'000);
  });
  EXPECT_EQ(run(1).item<float>(), -3);
  passes.join();
  EXPECT_EQ(run(2).item<float>(), -4) << "it asks itself now";
}

}  // namespace
}  // namespace millrace
