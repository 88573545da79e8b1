// test-links: ops
#include <gtest/gtest.h>

#include <vector>

#include "millrace/kernel/unread_outputs.h"
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

TEST(Compile, TellsKernelsWhichOutputsAreNotRead) {
  for (int read : {0, 1, 2}) {
    TestGraph g;
    const std::vector<Expr> parts =
        call_multi("Unpack", {g.feed(DType::kInt32, 0)}, {{"num", int64_t{3}}});
    g.fetch(parts[static_cast<size_t>(read)], 0);
    Ref<Plan> plan = g.plan().value();
    int found = 0;
    for (const PlanStep& step : plan->steps) {
      const AttrValue* const unread = step.node->attrs.find(kUnreadOutputsAttr);
      ASSERT_EQ(unread != nullptr, step.num_outputs == 3);
      if (unread == nullptr) continue;
      EXPECT_EQ(*unread->get<int64_t>(), 7 & ~(1 << read));
      ++found;
    }
    EXPECT_EQ(found, 1);
  }
}

TEST(Compile, DoesNotBelieveAGraphThatOutputsAreNotRead) {
  TestGraph g;
  const std::vector<Expr> parts =
      call_multi("Unpack", {g.feed(DType::kInt32, 0)},
                 {{"num", int64_t{2}}, {std::string(kUnreadOutputsAttr), int64_t{3}}});
  for (int i = 0; i < 2; ++i) g.fetch(parts[static_cast<size_t>(i)], i);
  Ref<Plan> plan = g.plan().value();
  for (const PlanStep& step : plan->steps) {
    EXPECT_EQ(step.node->attrs.find(kUnreadOutputsAttr), nullptr);
  }
}

}  // namespace
}  // namespace millrace
