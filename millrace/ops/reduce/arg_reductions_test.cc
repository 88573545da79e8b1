#include <gtest/gtest.h>

#include <limits>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_reduce_ops});

using C = Complex128;

Result<Tensor> arg(const char* op, const Tensor& x, int32_t axis,
                   DType output_type = DType::kInt64) {
  return OpTester(op)
      .attr("output_type", output_type)
      .input(x)
      .input(Tensor::scalar(axis))
      .run_one();
}

TEST(ArgReductions, EveryType) {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    const std::vector<DType> types = kernel_types(op);
    ASSERT_EQ(types.size(), 12u);
    for (DType dtype : types) {
      const Tensor x = make_tensor(dtype, {2, 3}, {3, 9, 9, 7, 1, 1});
      const bool max = op[3] == 'M' && op[4] == 'a';
      EXPECT_EQ(values_of(*arg(op, x, 1)), (max ? std::vector<C>{1, 0} : std::vector<C>{0, 1}));
      EXPECT_EQ(values_of(*arg(op, x, 0)),
                (max ? std::vector<C>{1, 0, 0} : std::vector<C>{0, 1, 1}));
    }
  }
}

TEST(ArgReductions, FirstOfEqualsAnywhere) {
  for (size_t first : {0, 1, 5, 15, 16, 31, 99}) {
    std::vector<float> values(100, 0.0F);
    for (size_t i = first; i < 100; i += 7) values[i] = 1;
    const Tensor x = Tensor::vector(std::span<const float>(values));
    EXPECT_EQ(arg("ArgMax", x, 0)->item<int64_t>(), static_cast<int64_t>(first));
    EXPECT_EQ(arg("ArgMin", x, 0)->item<int64_t>(), first == 0 ? 1 : 0);
  }
}

TEST(ArgReductions, MiddleDimension) {
  const Tensor x = random_tensor(DType::kFloat, {3, 20, 600}, 5);
  const Tensor y = *arg("ArgMax", x, 1, DType::kInt32);
  ASSERT_EQ(y.shape(), Shape({3, 600}));
  for (size_t i = 0; i < 1800; ++i) {
    const size_t column = i / 600 * 12000 + i % 600;
    size_t best = 0;
    for (size_t r = 1; r < 20; ++r) {
      if (x.data<float>()[column + r * 600] > x.data<float>()[column + best * 600]) best = r;
    }
    EXPECT_EQ(y.data<int32_t>()[i], static_cast<int32_t>(best));
  }
}

TEST(ArgReductions, NanIsNeverChosen) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(arg("ArgMax", Tensor::vector<float>({nan, 1, 2}), 0)->item<int64_t>(), 2);
  EXPECT_EQ(arg("ArgMin", Tensor::vector<float>({3, nan, 2}), 0)->item<int64_t>(), 2);
  EXPECT_EQ(arg("ArgMax", Tensor::vector<float>({nan, nan}), 0)->item<int64_t>(), 0);
}

TEST(ArgReductions, EmptyAndBadInputs) {
  const Tensor empty = Tensor::allocate(DType::kFloat, {0, 2}).value();
  EXPECT_EQ(arg("ArgMax", empty, 1)->shape(), Shape({0}));
  const Status status = arg("ArgMax", empty, 0).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("Reduction axis 0 is empty in shape [0,2]"), std::string::npos);
  EXPECT_EQ(arg("ArgMax", empty, 2).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(arg("ArgMin", Tensor::scalar(1.0F), 0).status().code(), Code::kInvalidArgument);
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "ArgMax", {}, "[2,?,4];=-1"), "[2,?]");
  EXPECT_EQ(*infer_shapes(ops, "ArgMax", {}, "[2,3];[]"), "[?]");
  EXPECT_FALSE(infer_shapes(ops, "ArgMax", {}, "[];=0").ok());
  EXPECT_FALSE(infer_shapes(ops, "ArgMax", {}, "[2];[3]").ok());
}

}  // namespace
}  // namespace millrace
