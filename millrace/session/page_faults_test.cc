// Steps that are repeated ask the system for no memory: not for tensors, nor for what kernels work
// with, nor for what a run itself needs.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "millrace/session/session_testing.h"

namespace millrace {
namespace {

using PageFaults = SessionTest;

// Of this thread so far.
int64_t page_faults() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST_F(PageFaults, RepeatedStepsHaveNone) {
#if defined(MILLRACE_ADDRESS_SANITIZER) || defined(MILLRACE_THREAD_SANITIZER)
  GTEST_SKIP() << "caches are off under a sanitizer";
#endif
  using Ints = std::vector<int64_t>;
  const auto filled = [&](const Shape& shape) {
    Tensor tensor = Tensor::zeros(DType::kFloat, shape).value();
    for (float& v : tensor.mutable_data<float>()) v = 0.01F;
    return tensor;
  };
  // Images of 2 MiB and 4 MiB: each would be at least a page for every step.
  const Expr x = placeholder("x");
  const Expr filter = builder_->constant(filled(Shape{3, 3, 16, 32}));
  const AttrMap window = {{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}};
  const Expr y = call("Relu", {call("Conv2D", {x, filter}, window)});
  const Expr pooled =
      call("MaxPool", {call("Exp", {y}) - y},
           {{"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 1}}, {"padding", "VALID"}});
  add("Sum", "sum", {pooled, int32_vector(*builder_, {0, 1, 2, 3})});
  SessionOptions options;
  options.threads = 1;  // all on this thread, where they are counted
  options.shape_plans = false;
  const std::unique_ptr<Session> s = session(options);
  const Tensor image = filled(Shape{8, 64, 64, 16});
  const auto step = [&] { ASSERT_TRUE(s->run({{"x", image}}, {"sum"}).ok()); };
  for (int i = 0; i < 5; ++i) step();
  const int64_t before = page_faults();
  constexpr int kSteps = 20;
  for (int i = 0; i < kSteps; ++i) step();
  // The system may take a page away and give it back now and then.
  EXPECT_LT(page_faults() - before, kSteps);
}

}  // namespace
}  // namespace millrace
