#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/nn/nn_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_image_ops});

using Doubles = std::vector<double>;

Result<Tensor> crop(const Tensor& image, const Tensor& boxes, const Tensor& indices,
                    std::initializer_list<int32_t> size, const char* method = "bilinear",
                    float outside = 0) {
  OpTester op("CropAndResize");
  op.attr("method", method).attr("extrapolation_value", outside);
  return op.input(image).input(boxes).input(indices).input(Tensor::vector<int32_t>(size)).run_one();
}

const Tensor kImage = Tensor::of<float>({1, 2, 2, 1}, {1, 2, 3, 4});
const Tensor kFirst = Tensor::vector<int32_t>({0});

TEST(CropAndResize, KnownValues) {
  const auto values = [](std::initializer_list<float> box, std::initializer_list<int32_t> size,
                         const char* method = "bilinear") {
    return doubles_of(
        crop(kImage, Tensor::of<float>({1, 4}, box), kFirst, size, method, 9).value());
  };
  EXPECT_EQ(values({0, 0, 1, 1}, {2, 2}), Doubles({1, 2, 3, 4}));
  EXPECT_EQ(values({0, 0, 1, 1}, {3, 3}), Doubles({1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4}));
  EXPECT_EQ(values({1, 1, 0, 0}, {2, 2}), Doubles({4, 3, 2, 1}));  // turned round
  EXPECT_EQ(values({0, 0, 1, 1}, {1, 1}), Doubles({2.5}));
  EXPECT_EQ(values({0, 0, 1, 2}, {1, 3}), Doubles({2, 3, 9}));
  EXPECT_EQ(values({0, 0, 0.75F, 0.25F}, {2, 2}, "nearest"), Doubles({1, 1, 3, 3}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(values({nan, 0, 1, 1}, {1, 1}), Doubles({9}));
}

// As a float, the last column of this image is the one behind it.
TEST(CropAndResize, StaysInsideVeryLongImages) {
  constexpr int64_t kWidth = (1 << 24) + 4;
  Tensor image = *Tensor::zeros(DType::kUInt8, Shape{1, 1, kWidth, 1});
  image.mutable_data<uint8_t>().back() = 200;
  const Tensor end = Tensor::of<float>({1, 4}, {0, 1, 0, 1});
  for (const char* method : {"bilinear", "nearest"}) {
    EXPECT_EQ(doubles_of(*crop(image, end, kFirst, {1, 1}, method)), Doubles({200}));
  }
}

// No channels, but more pixels than could be visited.
TEST(CropAndResize, GradientOfNoChannelsIsZero) {
  const Tensor dy = *Tensor::zeros(DType::kFloat, Shape{1, 1 << 30, 1 << 30, 0});
  const Tensor dx = *OpTester("CropAndResizeGradBoxes")
                         .input(dy)
                         .input(*Tensor::zeros(DType::kFloat, Shape{1, 2, 2, 0}))
                         .input(Tensor::of<float>({1, 4}, {0, 0, 1, 1}))
                         .input(kFirst)
                         .run_one();
  EXPECT_EQ(doubles_of(dx), Doubles(4, 0.0));
}

TEST(CropAndResize, EveryTypeOfImage) {
  const auto check = [](const Tensor& image) {
    SCOPED_TRACE(image.to_string());
    Result<Tensor> got =
        crop(image, Tensor::of<float>({1, 4}, {0, 0, 0, 1}), Tensor::vector<int32_t>({1}), {1, 3});
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(doubles_of(*got), Doubles({2, 4, 6}));
  };
  for (DType type : kFloatingTypes) check(tensor_of(type, {2, 1, 2, 1}, {0, 0, 2, 6}));
  check(Tensor::of<int8_t>({2, 1, 2, 1}, {0, 0, 2, 6}));
  check(Tensor::of<uint8_t>({2, 1, 2, 1}, {0, 0, 2, 6}));
  check(Tensor::of<int16_t>({2, 1, 2, 1}, {0, 0, 2, 6}));
  check(Tensor::of<uint16_t>({2, 1, 2, 1}, {0, 0, 2, 6}));
  check(Tensor::of<int32_t>({2, 1, 2, 1}, {0, 0, 2, 6}));
  check(Tensor::of<int64_t>({2, 1, 2, 1}, {0, 0, 2, 6}));
}

// Both gradients against differences of the sum of crops times dy.
TEST(CropAndResize, GradientsAgreeWithDifferences) {
  std::mt19937 random(6);
  const Shape shape{2, 5, 4, 2}, crops{3, 3, 4, 2};
  const Tensor image = random_tensor(DType::kFloat, shape, random);
  const Tensor dy = random_tensor(DType::kFloat, crops, random);
  const Tensor indices = Tensor::vector<int32_t>({0, 1, 1});
  const Doubles corners = {0.03, 0.11, 0.93, 0.83, 0.81, 0.21, 0.13, 0.67, 0.31, -0.4, 0.37, 1.3};
  const Tensor boxes = tensor_of(DType::kFloat, {3, 4}, corners);
  const auto sum = [&](const Tensor& x, const Tensor& b) {
    const Doubles y = doubles_of(crop(x, b, indices, {3, 4}).value()), g = doubles_of(dy);
    double total = 0;
    for (size_t i = 0; i < y.size(); ++i) total += y[i] * g[i];
    return total;
  };
  const Doubles got_image = doubles_of(OpTester("CropAndResizeGradImage")
                                           .attr("T", DType::kFloat)
                                           .input(dy)
                                           .input(boxes)
                                           .input(indices)
                                           .input(Tensor::vector<int32_t>({2, 5, 4, 2}))
                                           .run_one()
                                           .value());
  const Doubles pixels = doubles_of(image);
  for (size_t i = 0; i < pixels.size(); ++i) {
    Doubles moved = pixels;
    moved[i] += 1;
    EXPECT_NEAR(got_image[i],
                sum(tensor_of(DType::kFloat, shape, moved), boxes) - sum(image, boxes), 1e-3);
  }
  const Doubles got_boxes = doubles_of(OpTester("CropAndResizeGradBoxes")
                                           .input(dy)
                                           .input(image)
                                           .input(boxes)
                                           .input(indices)
                                           .run_one()
                                           .value());
  for (size_t i = 0; i < corners.size(); ++i) {
    Doubles up = corners, down = corners;
    up[i] += 0.001;
    down[i] -= 0.001;
    const double slope = (sum(image, tensor_of(DType::kFloat, {3, 4}, up)) -
                          sum(image, tensor_of(DType::kFloat, {3, 4}, down))) /
                         0.002;
    EXPECT_NEAR(got_boxes[i], slope, 0.02 * std::max(1.0, std::abs(slope))) << i;
  }
}

TEST(CropAndResize, NothingToDo) {
  const Tensor none = Tensor::zeros(DType::kFloat, {0, 4}).value();
  const Tensor no_indices = Tensor::zeros(DType::kInt32, {0}).value();
  EXPECT_EQ(crop(kImage, none, no_indices, {2, 3})->shape(), Shape({0, 2, 3, 1}));
  OpTester grad("CropAndResizeGradImage");
  grad.attr("T", DType::kFloat).input(Tensor::zeros(DType::kFloat, {0, 2, 3, 1}).value());
  grad.input(none).input(no_indices).input(Tensor::vector<int32_t>({1, 1, 2, 1}));
  EXPECT_TRUE(bit_equal(*grad.run_one(), Tensor::of<float>({1, 1, 2, 1}, {0, 0})));
}

TEST(CropAndResize, BadInputs) {
  const Tensor box = Tensor::of<float>({1, 4}, {0, 0, 1, 1});
  EXPECT_HAS(crop(kImage, box, Tensor::vector<int32_t>({1}), {2, 2}).status().to_string(),
             "OUT_OF_RANGE");
  EXPECT_HAS(crop(kImage, box, Tensor::vector<int32_t>({0, 0}), {2, 2}).status().to_string(),
             "for each of the 1 boxes");
  EXPECT_HAS(crop(kImage, box, kFirst, {0, 2}).status().to_string(), "must be positive");
  EXPECT_HAS(
      crop(kImage, Tensor::of<float>({1, 3}, {0, 0, 1}), kFirst, {2, 2}).status().to_string(),
      "INVALID_ARGUMENT");
}

TEST(CropAndResize, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(
      *infer_shapes(ops, "CropAndResize", {{"T", DType::kFloat}}, "[?,5,5,3];[?,4];[7];=[2,?]"),
      "[7,2,?,3]");
  EXPECT_EQ(*infer_shapes(ops, "CropAndResizeGradBoxes", {{"T", DType::kFloat}}, "[7,2,2,3];?;?;?"),
            "[7,4]");
  EXPECT_FALSE(
      infer_shapes(ops, "CropAndResize", {{"T", DType::kFloat}}, "[?,5,5,3];[6,4];[7];?").ok());
}

OpTester& with_patches(OpTester& op, std::vector<int64_t> size, std::vector<int64_t> strides,
                       std::vector<int64_t> rates, const char* padding) {
  return op.attr("ksizes", std::move(size))
      .attr("strides", std::move(strides))
      .attr("rates", std::move(rates))
      .attr("padding", padding);
}

TEST(ExtractImagePatches, KnownValues) {
  const Tensor image = Tensor::of<float>({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  OpTester valid("ExtractImagePatches"), same("ExtractImagePatches"), far("ExtractImagePatches");
  with_patches(valid, {1, 2, 2, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, "VALID").input(image);
  EXPECT_TRUE(
      bit_equal(*valid.run_one(),
                Tensor::of<float>({1, 2, 2, 4}, {1, 2, 4, 5, 2, 3, 5, 6, 4, 5, 7, 8, 5, 6, 8, 9})));
  with_patches(same, {1, 1, 2, 1}, {1, 2, 2, 1}, {1, 1, 1, 1}, "SAME").input(image);
  EXPECT_TRUE(
      bit_equal(*same.run_one(), Tensor::of<float>({1, 2, 2, 2}, {1, 2, 3, 0, 7, 8, 9, 0})));
  with_patches(far, {1, 2, 2, 1}, {1, 1, 1, 1}, {1, 2, 2, 1}, "VALID").input(image);
  EXPECT_TRUE(bit_equal(*far.run_one(), Tensor::of<float>({1, 1, 1, 4}, {1, 3, 7, 9})));
}

TEST(ExtractImagePatches, ChannelsStayTogether) {
  const Tensor image = Tensor::of<int64_t>({1, 1, 2, 2}, {1, 2, 3, 4});
  OpTester op("ExtractImagePatches");
  with_patches(op, {1, 1, 2, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, "VALID").input(image);
  EXPECT_TRUE(bit_equal(*op.run_one(), Tensor::of<int64_t>({1, 1, 1, 4}, {1, 2, 3, 4})));
  OpTester bad("ExtractImagePatches");
  with_patches(bad, {1, 1, 3, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, "VALID").input(image);
  EXPECT_EQ(bad.run_one()->shape(), Shape({1, 1, 0, 6}));
  OpTester wrong("ExtractImagePatches");
  with_patches(wrong, {1, 0, 3, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, "VALID").input(image);
  EXPECT_HAS(error_of(wrong), "ksize must be between 1");
  const AttrMap attrs = {{"ksizes", std::vector<int64_t>{1, 2, 2, 1}},
                         {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                         {"rates", std::vector<int64_t>{1, 1, 1, 1}},
                         {"padding", "SAME"}};
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "ExtractImagePatches", attrs, "[?,7,?,3]"),
            "[?,4,?,12]");
}

}  // namespace
}  // namespace millrace
