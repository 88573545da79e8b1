#include <gtest/gtest.h>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/quantized.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_nn_ops, register_math_ops});

Tensor bytes(const Shape& shape, std::initializer_list<int> values) {
  Tensor out = *Tensor::allocate(DType::kQUInt8, shape);
  size_t i = 0;
  for (int value : values) out.mutable_data<QUInt8>()[i++].value = static_cast<uint8_t>(value);
  return out;
}

TEST(QuantizedConv2D, OfNumbersThatStandForThemselves) {
  OpTester op("QuantizedConv2D");
  op.attr("strides", std::vector<int64_t>{1, 1, 1, 1}).attr("padding", "SAME");
  op.input(bytes({1, 1, 3, 1}, {1, 2, 3})).input(bytes({1, 2, 1, 1}, {10, 1}));
  for (float range : {0.F, 255.F, 0.F, 255.F}) op.input(Tensor::scalar(range));
  const std::vector<Tensor> out = op.run().value();
  EXPECT_EQ(out[0].shape(), (Shape{1, 1, 3, 1}));
  const std::vector<int32_t> expected = {12, 23, 30};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(out[0].data<QInt32>()[i].value, expected[i]);
  expect_tensor_equal(out[1], Tensor::scalar(-2147483648.F));
  expect_tensor_equal(out[2], Tensor::scalar(2147483647.F));
}

TEST(QuantizedConv2D, OfRangesAroundZero) {
  OpTester op("QuantizedConv2D");
  op.attr("strides", std::vector<int64_t>{1, 1, 1, 1}).attr("padding", "VALID");
  op.input(bytes({1, 1, 1, 2}, {100, 130})).input(bytes({1, 1, 2, 1}, {3, 4}));
  for (float range : {-128.F, 127.F, 0.F, 255.F}) op.input(Tensor::scalar(range));
  EXPECT_EQ(op.run().value()[0].data<QInt32>()[0].value, -28 * 3 + 2 * 4);
}

TEST(Dequantize, EachMode) {
  const auto run = [](const char* mode, const Tensor& from, float min, float max) {
    return OpTester("Dequantize")
        .attr("mode", mode)
        .input(from)
        .input(Tensor::scalar(min))
        .input(Tensor::scalar(max))
        .run_one();
  };
  const Tensor ends = bytes({3}, {0, 51, 255});
  expect_tensor_equal(*run("MIN_COMBINED", ends, -1, 4), Tensor::vector<float>({-1, 0, 4}));
  expect_tensor_equal(*run("MIN_FIRST", ends, 0, 5), Tensor::vector<float>({0, 1, 5}));
  expect_tensor_equal(*run("SCALED", ends, 0, 5), Tensor::vector<float>({0, 1, 5}));
  Tensor negative = *Tensor::allocate(DType::kQInt8, Shape{2});
  negative.mutable_data<QInt8>()[0].value = -128;
  negative.mutable_data<QInt8>()[1].value = 127;
  expect_tensor_equal(*run("MIN_COMBINED", negative, 1, 6), Tensor::vector<float>({1, 6}));
  expect_tensor_equal(*run("SCALED", negative, -256, 0), Tensor::vector<float>({-256, 254}));
}

TEST(Dequantize, ARangeForEachPlace) {
  const auto run = [](const Tensor& max, int64_t axis) {
    return OpTester("Dequantize")
        .attr("axis", axis)
        .input(bytes({2, 2}, {255, 255, 51, 51}))
        .input(Tensor::vector<float>({0, 0}))
        .input(max)
        .run_one();
  };
  const Tensor max = Tensor::vector<float>({1, 10});
  expect_tensor_equal(*run(max, 1), Tensor::of<float>({2, 2}, {1, 10, 0.2F, 2}));
  expect_tensor_equal(*run(max, 0), Tensor::of<float>({2, 2}, {1, 1, 2, 2}));
  EXPECT_FALSE(run(max, 2).ok());
  EXPECT_FALSE(run(Tensor::vector<float>({1}), 0).ok());
}

}  // namespace
}  // namespace millrace
