#include <gtest/gtest.h>

#include <limits>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool kRegistered = register_for_tests({register_reduce_ops});

Result<Tensor> run(const Tensor& a, const Tensor& b, int32_t axis, bool reverse = false,
                   bool shifted = false) {
  return OpTester("LinearRecurrence")
      .input(a)
      .input(b)
      .input(Tensor::scalar(axis))
      .attr("reverse", reverse)
      .attr("shifted", shifted)
      .run_one();
}

const Tensor kA = Tensor::vector<double>({2, 3, 4}), kB = Tensor::vector<double>({1, 10, 100});

TEST(LinearRecurrence, RunsBothWays) {
  EXPECT_TRUE(kRegistered);
  expect_tensor_equal(run(kA, kB, 0).value(), Tensor::vector<double>({1, 13, 152}));
  expect_tensor_equal(run(kA, kB, 0, true).value(), Tensor::vector<double>({621, 310, 100}));
}

TEST(LinearRecurrence, TakesTheFactorBefore) {
  expect_tensor_equal(run(kA, kB, -1, false, true).value(), Tensor::vector<double>({1, 12, 136}));
  expect_tensor_equal(run(kA, kB, 0, true, true).value(), Tensor::vector<double>({1231, 410, 100}));
}

TEST(LinearRecurrence, GoesAlongAnyAxis) {
  const Tensor a = Tensor::of<float>({2, 2}, {1, 2, 3, 4}),
               b = Tensor::of<float>({2, 2}, {1, 1, 1, 1});
  expect_tensor_equal(run(a, b, 0).value(), Tensor::of<float>({2, 2}, {1, 1, 4, 5}));
  expect_tensor_equal(run(a, b, 1).value(), Tensor::of<float>({2, 2}, {1, 3, 1, 5}));
  const Tensor wide = random_tensor(DType::kDouble, Shape{3, 1000}, 1);
  const Tensor y = run(wide, wide, 0).value();
  for (size_t i = 0; i < 1000; ++i) {
    const std::span<const double> x = wide.data<double>();
    EXPECT_EQ(y.data<double>()[2000 + i],
              x[2000 + i] * (x[1000 + i] * x[i] + x[1000 + i]) + x[2000 + i]);
  }
}

TEST(LinearRecurrence, BeginsAnewBeforeANumberThatIsNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_tensor_equal(
      run(Tensor::vector<double>({nan, 2}), Tensor::vector<double>({1, 1}), 0).value(),
      Tensor::vector<double>({1, 3}));
}

TEST(LinearRecurrence, RefusesWhatDoesNotFit) {
  EXPECT_EQ(run(kA, Tensor::vector<double>({1}), 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(run(kA, kB, 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(run(Tensor::scalar(1.0), Tensor::scalar(1.0), 0).status().code(),
            Code::kInvalidArgument);
  const Tensor none = Tensor::vector<double>({});
  expect_tensor_equal(run(none, none, 0).value(), none);
}

}  // namespace
}  // namespace millrace
