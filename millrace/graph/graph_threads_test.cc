// test-labels: threads
#include <gtest/gtest.h>

#include <thread>

#include "millrace/graph/graph.h"
#include "millrace/graph/sample_ops_testing.h"

namespace millrace {
namespace {

TEST(GraphThreadsTest, OneAddsWhileOthersRead) {
  constexpr int kNodes = 20000;
  OpRegistry registry;
  register_sample_ops(registry);
  const Ref<Graph> graph = make_ref<Graph>(registry);

  auto read = [&graph] {
    int64_t wrong = 0;
    int seen = 0;
    while (seen < kNodes) {
      const int count = graph->num_nodes();
      for (; seen < count; ++seen) {
        const Node& node = graph->node(seen);
        const bool right = node.id() == seen && node.name() == str_cat("n", seen) &&
                           node.num_outputs() == 1 && node.output_shape(0) == PartialShape{2};
        for (Output input : node.inputs()) wrong += input.node >= seen ? 1 : 0;
        wrong += right ? 0 : 1;
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(graph->find("n19999"), kNodes - 1);
  };
  std::thread first(read);
  std::thread second(read);
  for (int i = 0; i < kNodes; ++i) {
    NodeSpec spec;
    spec.name = str_cat("n", i);
    if (i == 0) {
      spec.op = "Placeholder";
      spec.attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape{2}}};
    } else {
      spec.op = "Neg";
      spec.inputs = {{i / 2, 0}};
      spec.attrs = {{"T", DType::kFloat}};
    }
    MR_CHECK_OK(graph->add(std::move(spec)).status());
  }
  first.join();
  second.join();
}

}  // namespace
}  // namespace millrace
