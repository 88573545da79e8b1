#include <gtest/gtest.h>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_reduce_ops});

Result<Tensor> count(const Tensor& arr, int32_t size, const Tensor& weights) {
  return OpTester("Bincount").input(arr).input(Tensor::scalar(size)).input(weights).run_one();
}

Tensor ints(std::initializer_list<int32_t> values) { return Tensor::vector(values); }

TEST(Bincount, CountsWhatIsBelowTheSize) {
  const Tensor arr = Tensor::of<int32_t>(Shape{2, 3}, {1, 1, 0, 4, 7, 1});
  expect_tensor_equal(*count(arr, 5, ints({})), ints({1, 3, 0, 0, 1}));
  expect_tensor_equal(*count(arr, 0, ints({})), ints({}));
  expect_tensor_equal(*count(ints({}), 2, Tensor::vector<double>({})),
                      Tensor::vector<double>({0, 0}));
}

TEST(Bincount, SumsWeights) {
  const Tensor arr = ints({1, 0, 1});
  expect_tensor_equal(*count(arr, 2, Tensor::vector<float>({.5F, 2, .25F})),
                      Tensor::vector<float>({2, .75F}));
  expect_tensor_equal(*count(arr, 2, Tensor::vector<double>({.5, 2, .25})),
                      Tensor::vector<double>({2, .75}));
  expect_tensor_equal(*count(arr, 2, Tensor::vector<int64_t>({3, 4, -5})),
                      Tensor::vector<int64_t>({4, -2}));
}

TEST(Bincount, RefusesWhatDoesNotFit) {
  const auto expect_refused = [](const Result<Tensor>& result, std::string_view part) {
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_NE(result.status().message().find(part), std::string_view::npos)
        << result.status().to_string();
  };
  expect_refused(count(ints({0, -1}), 2, ints({})), "non-negative");
  expect_refused(count(ints({0, 1}), -1, ints({})), "size must not be negative");
  expect_refused(count(ints({0, 1}), 2, ints({1})), "weights must have the shape");
  expect_refused(OpTester("Bincount").input(ints({})).input(ints({1})).input(ints({})).run_one(),
                 "must be a scalar");
}

}  // namespace
}  // namespace millrace
