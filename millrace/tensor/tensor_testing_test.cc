#include "millrace/tensor/tensor_testing.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

TEST(TensorTestingTest, EqualTellsWhatDiffers) {
  const Tensor a = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  expect_tensor_equal(a, a.clone().value());
  EXPECT_NONFATAL_FAILURE(expect_tensor_equal(a, Tensor::of<float>({2, 2}, {1, 2, 5, 4})),
                          "1 of 4 elements differ\n  at [1,0]: {3}, expected {5}");
  EXPECT_NONFATAL_FAILURE(expect_tensor_equal(a, a.reshaped(Shape{4}).value()),
                          "shape is [2,2], expected [4]");
  EXPECT_NONFATAL_FAILURE(expect_tensor_equal(Tensor::scalar(1), Tensor::scalar(1.0)),
                          "dtype is int32, expected double");
}

TEST(TensorTestingTest, CloseUsesBothTolerances) {
  const Tensor expected = Tensor::vector<double>({0, 100, NAN, INFINITY});
  expect_tensor_close(Tensor::vector<double>({0.01, 101, NAN, INFINITY}), expected, 0.01, 0.02);
  EXPECT_NONFATAL_FAILURE(
      expect_tensor_close(Tensor::vector<double>({0.1, 101, NAN, INFINITY}), expected, 0.01, 0.02),
      "at [0]");
  EXPECT_NONFATAL_FAILURE(
      expect_tensor_close(Tensor::vector<double>({0, 100, 1, -INFINITY}), expected), "2 of 4");
  EXPECT_NONFATAL_FAILURE(expect_tensor_close(Tensor::scalar(1), Tensor::scalar(2), 10, 10),
                          "1 of 1");
}

TEST(TensorTestingTest, RandomDependsOnTheSeed) {
  const Shape shape{8};
  expect_tensor_equal(random_tensor(DType::kFloat, shape, 1),
                      random_tensor(DType::kFloat, shape, 1));
  EXPECT_FALSE(
      bit_equal(random_tensor(DType::kFloat, shape, 1), random_tensor(DType::kFloat, shape, 2)));
}

}  // namespace
}  // namespace millrace
