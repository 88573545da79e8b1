// test-labels: threads
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "millrace/distributed/distributed_testing.h"
#include "millrace/distributed/forwarding_worker.h"
#include "millrace/distributed/master.h"
#include "millrace/session/session_backend.h"

// Traces of steps on several tasks, whose clocks have nothing to do with each other.

namespace millrace {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// A task whose clock is ahead by `skew_ns`, as everybody else sees it.
class SkewedWorker final : public ForwardingWorker {
 public:
  SkewedWorker(Ref<WorkerInterface> worker, int64_t skew_ns)
      : worker_(std::move(worker)), skew_ns_(skew_ns) {}

  void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) override {
    worker_->get_status([skew = skew_ns_, done = std::move(done)](auto status) mutable {
      if (status.ok()) status->clock_ns += skew;
      done(std::move(status));
    });
  }
  void run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override {
    worker_->run_graph(std::move(request), std::move(cancel),
                       [skew = skew_ns_, done = std::move(done)](
                           Status status, RunGraphResponse response) mutable {
                         response.received_ns += skew;
                         response.answered_ns += skew;
                         for (TraceEvent& event : response.events) {
                           if (event.scheduled_ns != 0) event.scheduled_ns += skew;
                           event.start_ns += skew;
                           event.end_ns += skew;
                         }
                         done(std::move(status), std::move(response));
                       });
  }

 protected:
  Result<Ref<WorkerInterface>> find_worker() const override { return worker_; }

 private:
  const Ref<WorkerInterface> worker_;
  const int64_t skew_ns_;
};

const std::map<std::string, int64_t, std::less<>> kSkews = {
    {std::string(kTask0), 5000 * kSecond + 17}, {std::string(kTask1), -3000 * kSecond}};

InProcessCluster* skewed_cluster = nullptr;  // of the test that runs

Result<Ref<SessionBackend>> make_skewed_backend(const SessionOptions&) {
  Ref<WorkerCache> workers = make_ref<WorkerCache>();
  for (const auto& [task, skew] : kSkews) {
    MR_TRY_ASSIGN(Ref<WorkerInterface> worker, skewed_cluster->workers()->find(task));
    MR_TRY(workers->add(task, make_ref<SkewedWorker>(std::move(worker), skew)));
  }
  MasterOptions options;
  options.task = std::string(kTask0);
  return make_master_backend(std::move(workers), options);
}

struct Told {
  long long offset_ns = 0, uncertainty_ns = 0;
};

// What the trace says of each task's clock.
std::map<std::string, Told> told_clocks(const std::vector<TraceEvent>& events) {
  std::map<std::string, Told> out;
  for (const TraceEvent& event : events) {
    if (event.kind != TraceEvent::Kind::kCall) continue;
    Told told;
    const size_t at = event.node.find("ahead by ");
    EXPECT_NE(at, std::string::npos) << event.node;
    EXPECT_EQ(std::sscanf(event.node.c_str() + at, "ahead by %lld ns, +/- %lld ns", &told.offset_ns,
                          &told.uncertainty_ns),
              2)
        << event.node;
    out[event.device] = told;
  }
  return out;
}

TEST(Timeline, TasksWithOtherClocksAreOnOne) {
  ClusterTest t({.transport = InProcessCluster::Transport::kSameHost});
  skewed_cluster = &t.cluster();
  ASSERT_TRUE(register_session_backend("skewed", make_skewed_backend).ok());
  t.on(kTask0);
  const Expr fed = t.placeholder(DType::kFloat);
  Expr x = fed;
  // There and back, three times; what is fed is there from the first.
  for (int i = 0; i < 6; ++i) {
    t.on(i % 2 == 0 ? kTask1 : kTask0);
    x = t.add("Neg", {x});
  }
  t.open({.target = "skewed://"});
  const std::string fetch = t.name(x);
  RunMetadata metadata;
  const auto out = t.session().run({{t.name(fed), Tensor::scalar<float>(1)}}, {fetch}, {},
                                   {.trace = true}, &metadata);
  ASSERT_TRUE(out.ok()) << out.status().to_string();

  const std::map<std::string, Told> clocks = told_clocks(metadata.events);
  ASSERT_EQ(clocks.size(), 2u);
  int64_t uncertainty = 0;
  for (const auto& [task, told] : clocks) {
    EXPECT_LE(std::abs(told.offset_ns - kSkews.at(task)), told.uncertainty_ns) << task;
    EXPECT_LT(told.uncertainty_ns, kSecond) << task;
    uncertainty += told.uncertainty_ns;
  }
  std::map<std::string, int64_t> sent;  // by tensor
  int received = 0;
  for (const TraceEvent& event : metadata.events) {
    if (event.op == "_Send" && event.kind == TraceEvent::Kind::kKernel) {
      sent[event.tensor] = event.start_ns;
    }
  }
  for (const TraceEvent& event : metadata.events) {
    if (event.kind != TraceEvent::Kind::kRecvWait) continue;
    ++received;
    ASSERT_TRUE(sent.contains(event.tensor)) << event.tensor;
    EXPECT_GE(event.end_ns, sent[event.tensor] - uncertainty) << event.tensor;
    EXPECT_EQ(event.allocated_bytes, 4);
    EXPECT_NE(event.peer.find("/task:"), std::string::npos);
    EXPECT_NE(event.peer, event.device);
  }
  EXPECT_EQ(received, 5);
  // Nothing of a step is before its begin or after its end by more than that.
  for (const TraceEvent& event : metadata.events) {
    EXPECT_GE(event.start_ns, metadata.events[0].start_ns);
    EXPECT_LT(event.end_ns, metadata.events[0].start_ns + 1000 * kSecond);
  }
}

}  // namespace
}  // namespace millrace
