// test-labels: threads
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "millrace/graph/graph_builder.h"
#include "millrace/ops/register_ops.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

// 32 threads run different signatures of one session while another thread adds nodes.
TEST(SessionThreads, ManySignaturesWhileTheGraphGrows) {
  ASSERT_TRUE(register_ops().ok());
  constexpr int kThreads = 32, kRuns = 20, kAdded = 200;
  Ref<Graph> graph = make_ref<Graph>();
  GraphBuilder builder(*graph);
  Output x = {builder.add("Placeholder", "x", {}, {{"dtype", DType::kInt32}}).value(), 0};
  std::vector<std::string> names;
  for (int i = 0; i < kThreads; ++i) {
    Expr c = builder.constant(Tensor::scalar<int32_t>(i));
    Output y = {builder.add("Mul", str_cat("y", i), {x, GraphBuilder::output(c)}).value(), 0};
    names.push_back(graph->node(y.node).name());
  }
  std::unique_ptr<Session> session = Session::create(graph, {.cpu_devices = 2}).value();
  std::atomic<int> wrong{0};
  std::atomic<int> published{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRuns; ++i) {
        Result<std::vector<Tensor>> out =
            session->run({{"x", Tensor::scalar<int32_t>(i)}}, {names[static_cast<size_t>(t)]});
        if (!out.ok() || (*out)[0].item<int32_t>() != i * t) ++wrong;
        int last = published.load();
        if (last == 0) continue;
        out = session->run({{"x", Tensor::scalar<int32_t>(i)}}, {str_cat("late", last - 1)});
        if (!out.ok() || (*out)[0].item<int32_t>() != -i) ++wrong;
      }
    });
  }
  for (int i = 0; i < kAdded; ++i) {
    ASSERT_TRUE(builder.add("Neg", str_cat("late", i), {x}).ok());
    published.store(i + 1);
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(SessionThreads, CloseEndsWhatRuns) {
  ASSERT_TRUE(register_ops().ok());
  Ref<Graph> graph = make_ref<Graph>();
  GraphBuilder builder(*graph);
  const AttrMap attrs = {{"component_types", std::vector<DType>{DType::kFloat}}};
  NodeId queue = builder.add("FIFOQueueV2", "queue", {}, attrs).value();
  ASSERT_TRUE(builder.add("QueueDequeueV2", "r", {{queue, 0}}, attrs).ok());
  std::unique_ptr<Session> session = Session::create(graph).value();
  std::vector<std::thread> threads;
  std::atomic<int> ended{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      Status status = session->run({}, {"r"}).status();
      EXPECT_TRUE(status.code() == Code::kCancelled || status.code() == Code::kFailedPrecondition)
          << status.to_string();
      ++ended;
    });
  }
  EXPECT_TRUE(session->close().ok());
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(ended.load(), 8);
}

}  // namespace
}  // namespace millrace
