// test-links: ops
#include <gtest/gtest.h>

#include "millrace/runtime/executor_testing.h"

namespace millrace {
namespace {

Status set_both(KernelContext& ctx) {
  MR_TRY(ctx.allocate_output(0, Shape()).status());
  return ctx.allocate_output(1, Shape()).status();
}

Result<std::unique_ptr<Kernel>> refuse(const KernelNode&) { return unimplemented("not this one"); }

TEST(Compile, NodesKnowWhichOutputsTheirKernelLeavesInHostMemory) {
  TestGraph g;
  std::vector<Expr> unique = call_multi("Unique", {g.feed(DType::kInt32, 0)});
  g.fetch(unique[0], 0);
  g.fetch(unique[1], 1);
  // The first choice refuses the node, so what it says about memory does not count.
  KernelRegistry kernels;
  ASSERT_TRUE(kernels.add({.op = "Unique", .function = set_both, .host_outputs = {1}}).ok());
  ASSERT_TRUE(
      kernels.add({.op = "Unique", .factory = refuse, .host_outputs = {-1}, .priority = 1}).ok());
  Result<Ref<Plan>> made = g.plan({.kernels = &kernels});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Plan& plan = **made;
  for (const PlanStep& step : plan.steps) {
    bool kernel = step.kind == StepKind::kKernel;
    EXPECT_EQ(step.host_outputs, kernel);
    EXPECT_EQ(step.node->host_outputs,
              kernel ? std::vector<bool>({false, true}) : std::vector<bool>());
  }
}

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
