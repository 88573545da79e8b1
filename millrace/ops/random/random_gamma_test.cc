#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_random_ops});

// `count` values for each of the parameters, [count, parameters].
Result<Tensor> draw(const char* op, int32_t count, const Tensor& parameters) {
  OpEnv env;
  return OpTester(env, op)
      .name("random")
      .attr("seed", int64_t{87654321})
      .attr("seed2", int64_t{5})
      .input(Tensor::vector<int32_t>({count}))
      .input(parameters)
      .run_one();
}

struct Moments {
  double mean = 0, variance = 0, least = INFINITY;
};

Moments moments(const Tensor& x, int64_t column) {
  const auto data = x.data<double>();
  const int64_t n = x.dim(0), width = x.dim(1);
  Moments m;
  for (int64_t i = 0; i < n; ++i) {
    const double v = data[static_cast<size_t>(i * width + column)];
    m.mean += v / static_cast<double>(n);
    m.variance += v * v / static_cast<double>(n);
    m.least = std::min(m.least, v);
  }
  m.variance -= m.mean * m.mean;
  return m;
}

TEST(RandomGamma, MeanAndVarianceAreAlpha) {
  const double alphas[] = {0.1, 0.5, 1, 2, 30};
  const Tensor x = *draw("RandomGamma", 20000, Tensor::vector<double>({0.1, 0.5, 1, 2, 30}));
  for (int64_t i = 0; i < 5; ++i) {
    const Moments m = moments(x, i);
    const double alpha = alphas[i], error = 5 * std::sqrt(alpha / 20000);
    EXPECT_NEAR(m.mean, alpha, error);
    EXPECT_NEAR(m.variance, alpha, 0.1 * alpha + error);
    EXPECT_GE(m.least, 0);
  }
}

TEST(RandomPoisson, MeanAndVarianceAreTheRate) {
  const double rates[] = {0, 0.5, 9, 40, 1000};
  const Tensor x = *draw("RandomPoisson", 20000, Tensor::vector<double>({0, 0.5, 9, 40, 1000}));
  for (int64_t i = 0; i < 5; ++i) {
    const Moments m = moments(x, i);
    const double rate = rates[i], error = 5 * std::sqrt(rate / 20000);
    EXPECT_NEAR(m.mean, rate, error);
    EXPECT_NEAR(m.variance, rate, 0.1 * rate + error);
    EXPECT_GE(m.least, 0);
    EXPECT_EQ(m.least, std::floor(m.least));
  }
}

TEST(RandomGamma, ValuesOfTheStream) {
  const Tensor x = *draw("RandomGamma", 3, Tensor::vector<float>({0.5F, 1, 2}));
  const double expected[] = {0.02773, 0.5916,  0.5887,  0.08038, 1.45437,
                             3.03404, 0.10488, 0.82442, 1.25817};
  for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(x.data<float>()[i], expected[i], 6e-6) << i;
  const Tensor y = *draw("RandomPoisson", 3, Tensor::vector<float>({0.5F, 30}));
  expect_tensor_equal(y, Tensor::of<float>({3, 2}, {0, 29, 0, 35, 0, 31}));
}

TEST(RandomGamma, BadParametersGiveNaN) {
  const Tensor x = *draw("RandomGamma", 2, Tensor::vector<float>({-1, -0.5F, NAN, -INFINITY}));
  for (float v : x.data<float>()) EXPECT_TRUE(std::isnan(v));
  const Tensor y = *draw("RandomPoisson", 2, Tensor::vector<float>({-1, NAN, INFINITY}));
  for (float v : y.data<float>()) EXPECT_TRUE(std::isnan(v));
}

TEST(RandomGamma, ExtremeAlphasAreTheirOwnMean) {
  const Tensor x = *draw("RandomGamma", 2, Tensor::vector<double>({0, 1e-320, 1e300, INFINITY}));
  expect_tensor_close(x, Tensor::of<double>({2, 4}, {0, 0, 1e300, INFINITY, 0, 0, 1e300, INFINITY}),
                      1e-12);
}

// Rates that the type, or a double with all its digits, cannot hold: none may draw for ever.
TEST(RandomPoisson, HugeRatesEnd) {
  const Tensor x = *draw("RandomPoisson", 2, Tensor::vector<float>({1e15F, 1e30F, 3e38F}));
  for (size_t i = 0; i < 6; ++i) {
    const float rate = i % 3 == 0 ? 1e15F : i % 3 == 1 ? 1e30F : 3e38F;
    EXPECT_NEAR(x.data<float>()[i] / rate, 1, 1e-5);
  }
  const auto integers = [](DType dtype) {
    return *OpTester("RandomPoissonV2")
                .attr("dtype", dtype)
                .input(Tensor::vector<int32_t>({}))
                .input(Tensor::vector<double>({1e9, 1e12, 1e17, 1e30, 1e300, -1, NAN, INFINITY}))
                .run_one();
  };
  const Tensor narrow = integers(DType::kInt32), wide = integers(DType::kInt64);
  EXPECT_NEAR(narrow.data<int32_t>()[0], 1e9, 1e6);
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(narrow.data<int32_t>()[i], INT32_MAX);
  EXPECT_NEAR(static_cast<double>(wide.data<int64_t>()[2]), 1e17, 1e10);
  for (size_t i = 3; i < 5; ++i) EXPECT_EQ(wide.data<int64_t>()[i], INT64_MAX - 1023);
  for (size_t i = 5; i < 8; ++i) EXPECT_EQ(wide.data<int64_t>()[i], 0);
  const Tensor half = *OpTester("RandomPoissonV2")
                           .attr("dtype", DType::kHalf)
                           .input(Tensor::vector<int32_t>({}))
                           .input(Tensor::scalar(1e6))
                           .run_one();
  EXPECT_EQ(static_cast<float>(half.data<Half>()[0]), 65504);
}

TEST(RandomGamma, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "RandomGamma", {}, "=[2,3];[4]"), "[2,3,4]");
  EXPECT_EQ(*infer_shapes(ops, "RandomGamma", {}, "?;[4]"), "?");
  EXPECT_EQ(draw("RandomGamma", 0, Tensor::vector<float>({1}))->shape(), Shape({0, 1}));
  EXPECT_EQ(draw("RandomPoisson", 3, Tensor::scalar(1.0F))->shape(), Shape({3}));
}

}  // namespace
}  // namespace millrace
