// test-links: ops
#include <gtest/gtest.h>

#include "millrace/runtime/executor_testing.h"

namespace millrace {
namespace {

TEST(Compile, OutputTypesLieInARow) {
  TestGraph g;
  Expr x = g.feed(DType::kInt32, 0);
  g.fetch(less(x, x + g.constant(1)), 0);
  Ref<Plan> plan = g.plan().value();
  for (const PlanStep& step : plan->steps) {
    EXPECT_EQ(std::vector<DType>(step.output_types, step.output_types + step.num_outputs),
              step.node->output_types);
  }
}

}  // namespace
}  // namespace millrace
