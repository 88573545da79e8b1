#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_random_ops});

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Result<Tensor> draw(const Tensor& shape, const Tensor& mean, const Tensor& deviation,
                    const Tensor& minimum, const Tensor& maximum) {
  OpEnv env;
  return OpTester(env, "ParameterizedTruncatedNormal")
      .attr("seed", int64_t{1})
      .attr("seed2", int64_t{2})
      .input(shape)
      .input(mean)
      .input(deviation)
      .input(minimum)
      .input(maximum)
      .run_one();
}

Result<Tensor> draw(int32_t n, float mean, float deviation, float minimum, float maximum) {
  return draw(Tensor::vector<int32_t>({n}), Tensor::scalar(mean), Tensor::scalar(deviation),
              Tensor::scalar(minimum), Tensor::scalar(maximum));
}

Tensor floats(std::initializer_list<float> values) { return Tensor::vector(values); }

// TensorFlow's numbers, of the same seeds, for each of the three methods.
TEST(ParameterizedTruncatedNormal, DrawsWhatTensorFlowDraws) {
  expect_tensor_close(
      *draw(6, 0, 1, -2, 2),
      floats({-1.0467793F, 0.8397046F, 1.2358364F, 0.3037427F, 1.2963251F, 0.4801929F}), 1e-5);
  expect_tensor_close(*draw(6, 0, 1, 4, kInfinity),
                      floats({4.2125616F, 4.683004F, 4.209241F, 4.0990887F, 4.0331225F, 4.245383F}),
                      1e-5);
  expect_tensor_close(
      *draw(6, 0, 1, -kInfinity, -4),
      floats({-4.2125616F, -4.683004F, -4.209241F, -4.0990887F, -4.0331225F, -4.245383F}), 1e-5);
  expect_tensor_close(
      *draw(6, 0, 1, 0.5F, 2),
      floats({1.2030308F, 1.1920483F, 0.8277283F, 0.6095499F, 1.311585F, 0.77701145F}), 1e-5);
  expect_tensor_close(*draw(Tensor::vector<int64_t>({2, 3}), floats({0, 5}), floats({1, 2}),
                            floats({-1, 4}), floats({1, 6})),
                      Tensor::of<float>(Shape{2, 3}, {-0.1872065F, 0.71519923F, -0.8892083F,
                                                      5.738179F, 4.0844545F, 4.707292F}),
                      1e-5);
  const Tensor x = *draw(Tensor::vector<int32_t>({6}), Tensor::scalar(0.0), Tensor::scalar(1.0),
                         Tensor::scalar(-2.0), Tensor::scalar(2.0));
  expect_tensor_close(x,
                      Tensor::vector<double>(
                          {0.58105877, -1.55742911, 1.555897, -0.0753995, -0.27352397, 0.14851613}),
                      1e-7);
}

// The mean of each distribution by its formula.
TEST(ParameterizedTruncatedNormal, MeansAreRight) {
  const auto density = [](double z) {
    return std::isinf(z) ? 0.0 : std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  };
  const auto below = [](double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; };
  struct Case {
    float mean, deviation, minimum, maximum;
  };
  for (const Case& c : {Case{0, 1, -2, 2},
                        {3, 2, 4, 5},
                        {-1, 1, 2, kInfinity},
                        {0, 1, -6, -3},
                        {0, 0.1F, 0.05F, 0.1F},
                        {1, 3, -kInfinity, 2}}) {
    const Tensor x = *draw(100000, c.mean, c.deviation, c.minimum, c.maximum);
    double sum = 0;
    for (float v : x.data<float>()) {
      EXPECT_GE(v, c.minimum);
      EXPECT_LE(v, c.maximum);
      sum += v;
    }
    const double a = (c.minimum - c.mean) / c.deviation, b = (c.maximum - c.mean) / c.deviation;
    const double mean = c.mean + c.deviation * (density(a) - density(b)) / (below(b) - below(a));
    EXPECT_NEAR(sum / 100000, mean, 0.015 * c.deviation);
  }
}

TEST(ParameterizedTruncatedNormal, SmallTypesStayBetweenBounds) {
  const auto check = [&]<class T>(T) {
    const Tensor x =
        *draw(Tensor::vector<int32_t>({1000}), Tensor::scalar(T(0.0F)), Tensor::scalar(T(1.0F)),
              Tensor::scalar(T(0.5F)), Tensor::scalar(T(2.0F)));
    for (T v : x.data<T>()) {
      EXPECT_GE(static_cast<float>(v), 0.5F);
      EXPECT_LE(static_cast<float>(v), 2.0F);
    }
  };
  check(Half());
  check(BFloat16());
}

TEST(ParameterizedTruncatedNormal, RefusesWhatIsNoDistribution) {
  const auto expect_refused = [](const Result<Tensor>& result, std::string_view part) {
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_NE(result.status().message().find(part), std::string_view::npos)
        << result.status().to_string();
  };
  expect_refused(draw(6, 0, 1, 2, -2), "Invalid parameters");
  expect_refused(draw(6, 0, -1, -2, 2), "Invalid parameters");
  expect_refused(draw(6, 0, NAN, -2, 2), "Invalid parameters");
  expect_refused(draw(6, 0, 1, -kInfinity, kInfinity), "Invalid parameters");
  expect_refused(draw(6, NAN, 1, -2, 2), "finite mean");
  expect_refused(draw(6, kInfinity, 1, -2, 2), "finite mean");
  const Tensor one = Tensor::scalar(1.0F), two = Tensor::scalar(2.0F);
  const Tensor shape = Tensor::vector<int32_t>({3, 2});
  expect_refused(draw(shape, floats({0, 0}), one, one, two), "shape[0] = 3");
  expect_refused(draw(shape, Tensor::of<float>(Shape{1, 1}, {0}), one, one, two),
                 "a scalar or a vector");
  expect_refused(draw(Tensor::vector<int32_t>({}), one, one, one, two), "must not be empty");
  EXPECT_EQ(draw(0, 0, 1, -2, 2)->shape(), Shape{0});
}

}  // namespace
}  // namespace millrace
