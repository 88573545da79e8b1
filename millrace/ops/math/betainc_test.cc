#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/math/special_functions.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_math_ops});

// Of whole numbers: at least a of a + b - 1 throws succeed.
double at_least(int a, int b, double x) {
  const int n = a + b - 1;
  double sum = 0;
  for (int j = a; j <= n; ++j) {
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(j + 1) - std::lgamma(n - j + 1)) *
           std::pow(x, j) * std::pow(1 - x, n - j);
  }
  return sum;
}

TEST(Betainc, OfWholeNumbers) {
  for (int a : {1, 2, 7, 40}) {
    for (int b : {1, 3, 20}) {
      std::vector<double> x, want;
      for (double p = 0; p <= 1; p += 0.0625) {
        x.push_back(p);
        want.push_back(at_least(a, b, p));
      }
      const auto count = static_cast<int64_t>(x.size());
      const Tensor points =
          make_tensor(DType::kDouble, Shape{count}, std::vector<Complex128>(x.begin(), x.end()));
      const Tensor got = OpTester("Betainc")
                             .input(Tensor::scalar<double>(a))
                             .input(Tensor::scalar<double>(b))
                             .input(points)
                             .run_one()
                             .value();
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got.data<double>()[i], want[i], 1e-13) << a << " " << b << " " << x[i];
      }
    }
  }
}

TEST(Betainc, OfFloatsAndOutsideItsDomain) {
  const Tensor got = OpTester("Betainc")
                         .input(Tensor::vector<float>({0.5F, 0, 1, 1}))
                         .input(Tensor::vector<float>({0.5F, 0, -1, 1}))
                         .input(Tensor::vector<float>({0.5F, 0.5F, 0.5F, 2}))
                         .run_one()
                         .value();
  EXPECT_FLOAT_EQ(got.data<float>()[0], 0.5F);
  for (size_t i = 1; i < 4; ++i) EXPECT_TRUE(std::isnan(got.data<float>()[i])) << i;
}

TEST(Betainc, HasItsLimitsAtZero) {
  const Tensor got = OpTester("Betainc")
                         .input(Tensor::vector<double>({0, 0, 0, 2, 2, 2}))
                         .input(Tensor::vector<double>({2, 2, 2, 0, 0, 0}))
                         .input(Tensor::vector<double>({0, 0.5, 1, 0, 0.5, 1}))
                         .run_one()
                         .value();
  expect_tensor_equal(got, Tensor::vector<double>({0, 1, 1, 0, 0, 1}));
}

TEST(Betainc, ShapesAreEqualOrScalar) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "Betainc", {}, "[];[];[]"), "[]");
  EXPECT_EQ(*infer_shapes(ops, "Betainc", {}, "[];[2,?];[?,3]"), "[2,3]");
  EXPECT_EQ(*infer_shapes(ops, "Betainc", {}, "[];?;[]"), "?");
  EXPECT_EQ(*infer_shapes(ops, "Betainc", {}, "?;[2];?"), "[2]");
  EXPECT_FALSE(infer_shapes(ops, "Betainc", {}, "[2];[3];[]").ok());
  OpTester op("Betainc");
  const Status status = op.input(Tensor::vector<float>({1}))
                            .input(Tensor::vector<float>({1, 2}))
                            .input(Tensor::scalar(0.5F))
                            .run()
                            .status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
}

TEST(SpecialFunctions, KeepTheirDigitsAtTheEnds) {
  const auto near = [](double got, double want) { EXPECT_NEAR(got, want, 1e-14 * std::abs(want)); };
  near(inverse_erf(1e-20), 1e-20 * std::sqrt(M_PI) / 2);
  near(std::erfc(inverse_erf(1 - 0x1p-50)) * 0x1p50, 1);
  EXPECT_NEAR(normal_quantile(1e-300), -37.0471, 1e-4);
  // One bit of the quantile is four hundred of the probability.
  EXPECT_NEAR(std::erfc(-normal_quantile(1e-100) / std::sqrt(2.0)) * 1e100, 2, 1e-12);
  EXPECT_EQ(normal_quantile(0), -INFINITY);
  EXPECT_EQ(normal_quantile(1), INFINITY);
  EXPECT_EQ(inverse_erf(-1), -INFINITY);
  EXPECT_TRUE(std::isnan(inverse_erf(1.5)));
  EXPECT_TRUE(std::isnan(normal_quantile(-0.5)));
  near(scaled_bessel(0, 1e6) * std::sqrt(2e6 * M_PI), 1 + 1.25e-7 + 7.03125e-14);
  EXPECT_EQ(scaled_bessel(0, 0), 1);
  EXPECT_EQ(scaled_bessel(1, 0), 0);
  EXPECT_EQ(scaled_bessel(1, -INFINITY), 0);
}

}  // namespace
}  // namespace millrace
