// What many signatures and many lost sessions leave behind: nothing that grows.
#include <gtest/gtest.h>

#include "millrace/distributed/distributed_testing.h"

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

TEST(BoundedMemory, AThousandSessionsThatWereLostLeaveNothing) {
  const Ref<ManualTimer> tasks = make_ref<ManualTimer>(), masters = make_ref<ManualTimer>();
  ClusterTest t({.transport = InProcessCluster::Transport::kSameHost,
                 .worker_timer = tasks,
                 .master_timer = masters});
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
  // Their masters' time stands still: as far as the tasks can tell, they were killed.
  tasks->advance(lease_ms_for(lost_after_ms()) * 1'000'000);
  for (const std::string_view task : {kTask0, kTask1}) {
    const WorkerActivity left = t.cluster().worker(task).value()->activity(0);
    EXPECT_TRUE(left.sessions.empty());
    EXPECT_TRUE(left.steps.empty());
    EXPECT_EQ(graphs_on(t, task), 0);
  }
}

}  // namespace
}  // namespace millrace
