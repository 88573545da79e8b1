// test-labels: threads
// Masters that are not heard of any more, and runs that wait for long, over the transport between
// processes, with timers that pass when told to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "millrace/base/log_testing.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/distributed/same_host/same_host.h"

namespace millrace {
namespace {

constexpr int64_t kMilli = 1'000'000;
const int64_t kLease = lease_ms_for(lost_after_ms()) * kMilli;

bool mentions(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

class LostMaster : public testing::Test {
 protected:
  Ref<ManualTimer> tasks_ = make_ref<ManualTimer>(), masters_ = make_ref<ManualTimer>();
  ClusterTest t_{{.transport = InProcessCluster::Transport::kSameHost,
                  .worker_timer = tasks_,
                  .master_timer = masters_}};

  WorkerActivity activity(std::string_view task) {
    return t_.cluster().worker(task).value()->activity(0);
  }
  // Returns once the condition holds; false after ten seconds.
  static bool wait_until(FunctionRef<bool()> condition) {
    const Deadline deadline = Deadline::after_millis(10'000);
    while (!condition()) {
      if (deadline.expired()) return false;
      std::this_thread::yield();
    }
    return true;
  }
};

TEST_F(LostMaster, LeavesNothingOnTheTasksOnceItsLeaseHasRunOut) {
  t_.on(kTask1);
  const Expr one = t_.add("Add", {t_.constant(1), t_.constant(2)});
  const Expr never = t_.add("TestStuck", {});
  t_.on(kTask0);
  const Expr sum = t_.add("Add", {one, one}), waits = t_.add("Neg", {never});
  t_.open();
  ASSERT_EQ(t_.run(sum).value(), 6);
  const int before = stuck_so_far();
  Status ended;
  std::thread run([&] { ended = t_.run(waits).status(); });
  wait_for_stuck(before + 1);
  EXPECT_EQ(activity(kTask1).sessions.size(), 1u);
  tasks_->advance(kLease);  // while the master's time stands still
  run.join();
  EXPECT_EQ(ended.code(), Code::kAborted);
  EXPECT_TRUE(mentions(ended.message(), "the lease of session")) << ended.to_string();
  for (const std::string_view task : {kTask0, kTask1}) {
    EXPECT_TRUE(activity(task).sessions.empty());
    // An abort that comes before the run it is about makes a step, until the cleanup comes.
    EXPECT_TRUE(wait_until([&] { return activity(task).steps.empty(); }));
  }
  EXPECT_EQ(t_.registered_graphs(), 0u);
  // It was away only, and is told so; a new session goes on.
  const Status again = t_.run(sum).status();
  EXPECT_EQ(again.code(), Code::kAborted);
  EXPECT_TRUE(mentions(again.message(), "make a new session")) << again.to_string();
  t_.open();
  EXPECT_EQ(t_.run(sum).value(), 6);
}

TEST_F(LostMaster, KeepsItsSessionsWhileItIsHeardOf) {
  t_.on(kTask1);
  const Expr x = t_.placeholder(DType::kFloat);
  const Expr sum = t_.add("Add", {x, t_.constant(2)});
  const Session::Feeds feeds = {{t_.name(x), Tensor::scalar(1.0F)}};
  t_.open();
  ASSERT_EQ(t_.run(sum, feeds).value(), 3);
  const int64_t beat_ms = beat_ms_for(kLease / kMilli);
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(wait_until([&] {
      masters_->advance(beat_ms * kMilli);  // a sign of life waits for the answer to the last one
      for (const std::string_view task : {kTask0, kTask1}) {  // the fetch is on the first one
        const WorkerActivity now = activity(task);
        if (now.sessions.size() != 1) return false;
        if (now.sessions[0].lease_left_ms != kLease / kMilli) return false;
      }
      return true;
    }));
    tasks_->advance(beat_ms * kMilli);
  }
  EXPECT_EQ(t_.run(sum, feeds).value(), 3);
  t_.close();
  EXPECT_TRUE(wait_until([&] { return activity(kTask1).sessions.empty(); }));
}

// What a lost caller runs on the other side ends before its lease does.
TEST_F(LostMaster, EndsItsRunsSoonWhenItsConnectionIsLost) {
  const Ref<ManualTimer> timer = make_ref<ManualTimer>();
  std::vector<Ref<Device>> devices = make_cpu_devices(DeviceName::parse(kTask0).value(), 1).value();
  TestGraph g;
  g.builder().context().device = devices[0]->name();
  g.fetch(g.builder().emit("TestStuck", {}, {})[0], 0);
  const Ref<Worker> worker =
      Worker::create(std::string(kTask0), std::move(devices), make_ref<WorkerCache>(), timer)
          .value();
  const std::string socket = str_cat("millrace-lost-master-test-", getpid());
  const auto server = SameHostServer::start(socket, make_worker_service(worker)).value();
  Ref<WorkerInterface> caller = make_remote_worker(make_same_host_channel(socket, "the worker"));
  RegisterGraphRequest graph;
  graph.session = "s";
  const int64_t bear_loss_ms = bear_loss_ms_for(lost_after_ms());
  graph.lease_ms = 2 * bear_loss_ms;
  graph.graph_def = Subgraph::from_graph(g.graph()).to_graph_def_bytes().value();
  RunGraphRequest run;
  worker->register_graph(
      graph, [&](Result<std::string> handle) { run.graph_handle = std::move(handle).value(); });
  run.step_id = 1;
  run.fetches = {0};
  const int before = stuck_so_far();
  caller->run_graph(run, nullptr, [](const Status&, const RunGraphResponse&) {});
  wait_for_stuck(before + 1);
  const size_t scheduled = timer->scheduled();
  caller = nullptr;
  // It might have asked again.
  EXPECT_TRUE(wait_until([&] { return timer->scheduled() > scheduled; }));
  EXPECT_FALSE(worker->activity(1).steps[0].waits_for.empty());
  timer->advance(bear_loss_ms * kMilli);
  EXPECT_TRUE(wait_until([&] { return worker->activity(1).steps[0].waits_for.empty(); }));
  EXPECT_EQ(worker->activity(0).sessions.size(), 1u);
  timer->advance(bear_loss_ms * kMilli);
  EXPECT_TRUE(worker->activity(0).sessions.empty());
  EXPECT_TRUE(worker->activity(0).steps.empty());
  EXPECT_EQ(worker->num_graphs(), 0);
  worker->shut_down(cancelled("the test is over"));
}

TEST_F(LostMaster, ARunThatWaitsSaysForWhat) {
  t_.on(kTask1);
  const AttrMap types = {{"component_types", std::vector<DType>{DType::kFloat}}};
  const Expr queue = t_.add("FIFOQueueV2", {}, types);
  const Expr taken = t_.add("QueueDequeueV2", {queue}, types);
  t_.on(kTask0);
  const Expr waits = t_.add("Neg", {taken});
  t_.open();
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  Status ended;
  std::thread run([&] { ended = t_.run(waits, {}, {.cancel = cancel}).status(); });
  const auto both_wait = [&] {
    const std::vector<WorkerActivity::Step> first = activity(kTask0).steps;
    const std::vector<WorkerActivity::Step> other = activity(kTask1).steps;
    // The other one for the queue, and for the time to send what the first one waits for.
    return first.size() == 1 && first[0].waits_for.size() == 1 && other.size() == 1 &&
           other[0].waits_for.size() == 2;
  };
  ASSERT_TRUE(wait_until(both_wait));
  KeptLog notices;
  masters_->advance((report_after_ms() - 1) * kMilli);
  EXPECT_EQ(notices.take(), "");
  masters_->advance(1 * kMilli);
  const std::string text = notices.take();
  EXPECT_TRUE(mentions(text, str_cat("after ", report_after_ms() / 1000, " s"))) << text;
  EXPECT_TRUE(mentions(text, str_cat(kTask1, " waits for QueueDequeueV2 \"QueueDequeueV2\"")))
      << text;
  EXPECT_TRUE(mentions(text, str_cat(kTask0, " waits for ", kTask1, "/device:CPU:0;"))) << text;
  EXPECT_TRUE(mentions(text, str_cat(" from ", kTask1))) << text;
  EXPECT_TRUE(mentions(text, str_cat(kTask1, " has not sent "))) << text;
  masters_->advance((report_after_ms() - 1) * kMilli);
  EXPECT_EQ(notices.take(), "");
  masters_->advance(1 * kMilli);
  EXPECT_NE(notices.take(), "");
  cancel->cancel(cancelled("enough"));
  run.join();
  EXPECT_EQ(ended.code(), Code::kCancelled);
}

}  // namespace
}  // namespace millrace
