#include "millrace/ops/accumulate.h"

#include <gtest/gtest.h>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_ops().ok();

using Ints = std::vector<int64_t>;

struct Case {
  const char* op;
  AttrMap attrs;
  std::vector<Tensor> inputs;
  double expected;  // of the first element
  bool list = false;
};

// `most` + 1 is rounded to `most` in this type.
std::vector<Case> cases(DType dtype, double most) {
  const auto filled = [&](Shape shape, double value) {
    return make_tensor(dtype, shape,
                       std::vector<Complex128>(static_cast<size_t>(shape.num_elements()), value));
  };
  const Shape image{1, 64, 64, 1};
  const Tensor ones = filled(image, 1), zeros = filled(image, 0), row = filled({4096}, 1);
  const Tensor no_ids = Tensor::zeros(DType::kInt32, {4096}).value();
  const AttrMap windows = {{"strides", Ints{1, 1, 1, 1}}, {"padding", "VALID"}};
  AttrMap dilation = windows, argmax = windows;
  dilation.set("rates", Ints{1, 1, 1, 1});
  argmax.set("ksize", Ints{1, 1, 1, 1});
  return {
      {"Sum", {}, {row, Tensor::scalar<int32_t>(0)}, 4096},
      {"SegmentSum", {}, {row, no_ids}, 4096},
      {"BiasAddGrad", {}, {filled({4096, 1}, 1)}, 4096},
      {"AddN", {}, {filled({1}, most), filled({1}, 1), filled({1}, 1)}, most + 2, true},
      {"ScatterNd",
       {},
       {no_ids.reshaped({4096, 1}).value(), row, Tensor::vector<int32_t>({1})},
       4096},
      {"MirrorPadGrad",
       {{"mode", "SYMMETRIC"}},
       {make_tensor(dtype, {3}, {1, most, 1}), Tensor::of<int32_t>({1, 2}, {1, 1})},
       most + 2},
      {"Dilation2DBackpropFilter", dilation, {zeros, filled({1, 1, 1}, 0), ones}, 4096},
      {"MaxPoolGradWithArgmax",
       argmax,
       {zeros, ones, Tensor::zeros(DType::kInt64, image).value()},
       4096},
  };
}

TEST(Accumulate, SumsOfSmallTypesAreRoundedOnce) {
  for (const auto& [dtype, most] : {std::pair{DType::kHalf, 2048.0}, {DType::kBFloat16, 256.0}}) {
    for (const Case& c : cases(dtype, most)) {
      OpTester op(c.op);
      for (const auto& [name, value] : c.attrs) op.attr(name, value);
      if (c.list) {
        op.input_list(c.inputs);
      } else {
        for (const Tensor& input : c.inputs) op.input(input);
      }
      const Result<Tensor> sum = op.run_one();
      ASSERT_TRUE(sum.ok()) << c.op << ": " << sum.status().to_string();
      EXPECT_EQ(values_of(*sum)[0].real(), c.expected) << c.op << " of " << dtype_name(dtype);
    }
  }
}

TEST(Accumulate, IntegersWrap) {
  EXPECT_EQ(wrapping_add<int32_t>(INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(wrapping_add<int64_t>(INT64_MIN, -1), INT64_MAX);
  EXPECT_EQ(wrapping_add<int8_t>(127, 1), -128);
  EXPECT_EQ(wrapping_add<uint16_t>(65535, 2), 1);
}

}  // namespace
}  // namespace millrace
