#include <gtest/gtest.h>

#include <cmath>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"

namespace millrace {
namespace {

class ToBool : public testing::Test {
 protected:
  static void SetUpTestSuite() { register_for_tests({register_control_ops}); }

  static bool of(const Tensor& x) {
    return OpTester("ToBool").input(x).run_one().value().item<bool>();
  }
};

TEST_F(ToBool, IsWhetherANumberIsNotZero) {
  EXPECT_TRUE(of(Tensor::scalar<int32_t>(-3)));
  EXPECT_FALSE(of(Tensor::scalar<int64_t>(0)));
  EXPECT_FALSE(of(Tensor::scalar(false)));
  EXPECT_TRUE(of(Tensor::scalar(NAN)));
  EXPECT_TRUE(of(Tensor::scalar(Complex64(0, 1))));
}

TEST_F(ToBool, BothZerosAreFalse) {
  for (float zero : {0.0F, -0.0F}) {
    EXPECT_FALSE(of(Tensor::scalar(zero)));
    EXPECT_FALSE(of(Tensor::scalar(static_cast<double>(zero))));
    EXPECT_FALSE(of(Tensor::scalar(Half(zero))));
    EXPECT_FALSE(of(Tensor::scalar(BFloat16(zero))));
    EXPECT_FALSE(of(Tensor::scalar(Complex64(zero, -zero))));
    EXPECT_FALSE(of(Tensor::scalar(Complex128(-zero, zero))));
  }
}

TEST_F(ToBool, IsWhetherThereIsSomething) {
  EXPECT_TRUE(of(Tensor::scalar<std::string>("0")));
  EXPECT_FALSE(of(Tensor::scalar<std::string>("")));
  EXPECT_TRUE(of(Tensor::vector<float>({0})));
  EXPECT_FALSE(of(Tensor::vector<float>({})));
}

}  // namespace
}  // namespace millrace
