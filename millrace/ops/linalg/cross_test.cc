#include <gtest/gtest.h>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_linalg_ops});

Result<Tensor> cross(const Tensor& a, const Tensor& b) {
  return OpTester("Cross").input(a).input(b).run_one();
}

TEST(Cross, EveryType) {
  for (DType dtype : kernel_types("Cross")) {
    const Tensor a = make_tensor(dtype, {2, 3}, {2, 3, 4, 0, 1, 0});
    const Tensor b = make_tensor(dtype, {2, 3}, {5, 6, 9, 1, 0, 0});
    const bool is_unsigned = kUnsignedIntegers.contains(dtype);
    const Tensor y = *cross(a, b);
    if (!is_unsigned) expect_tensor_equal(y, make_tensor(dtype, {2, 3}, {3, 2, -3, 0, 0, -1}));
    EXPECT_EQ(values_of(y)[0], 3.0);
  }
  EXPECT_EQ(cross(Tensor::of<float>({0, 3}, {}), Tensor::of<float>({0, 3}, {}))->shape(),
            (Shape{0, 3}));
}

TEST(Cross, BadInputs) {
  const Tensor three = Tensor::vector<float>({1, 2, 3}), two = Tensor::vector<float>({1, 2});
  EXPECT_EQ(cross(three, two).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cross(two, two).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cross(Tensor::scalar(1.0F), Tensor::scalar(1.0F)).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "Cross", {}, "[2,?];[?,?]"), "[2,3]");
}

}  // namespace
}  // namespace millrace
