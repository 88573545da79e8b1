#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/nn/nn_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_image_ops});

using Doubles = std::vector<double>;

void expect_near(const Tensor& got, const Doubles& want, double tolerance) {
  const Doubles values = doubles_of(got);
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], want[i], tolerance) << i;
}

constexpr DType kAdjustTypes[] = {DType::kFloat, DType::kHalf, DType::kBFloat16};

TEST(Color, KnownColours) {
  const Doubles rgb = {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1};
  const Doubles hsv = {0,       0, 0, 0,       0, 1, 0,   0 + 1, 1, 2.0 / 6, 1, 1,
                       4.0 / 6, 1, 1, 1.0 / 6, 1, 1, 0.5, 1,     1, 5.0 / 6, 1, 1};
  for (DType type : kFloatingTypes) {
    const Tensor colours = tensor_of(type, {8, 3}, rgb);
    expect_near(*OpTester("RGBToHSV").input(colours).run_one(), hsv, tolerance(type));
    expect_near(*OpTester("HSVToRGB").input(tensor_of(type, {8, 3}, hsv)).run_one(), rgb,
                8 * tolerance(type));
  }
}

TEST(Color, HsvAndBack) {
  std::mt19937 random(1);
  Doubles colours = doubles_of(random_tensor(DType::kDouble, {50, 3}, random));
  for (double& c : colours) c = std::abs(c) / 2;
  const Tensor rgb = tensor_of(DType::kDouble, {50, 3}, colours);
  const Tensor hsv = OpTester("RGBToHSV").input(rgb).run_one().value();
  expect_near(*OpTester("HSVToRGB").input(hsv).run_one(), colours, 1e-12);
}

TEST(Color, AdjustHueAndSaturation) {
  for (DType type : kAdjustTypes) {
    const double near = 8 * tolerance(type);
    const Tensor red = tensor_of(type, {1, 1, 3}, {1, 0.5, 0.5});
    const auto run = [&](const char* op, float by) {
      return OpTester(op).input(red).input(Tensor::scalar(by)).run_one().value();
    };
    expect_near(run("AdjustHue", 1.0F / 3), {0.5, 1, 0.5}, near);
    expect_near(run("AdjustHue", -1.0F / 3), {0.5, 0.5, 1}, near);
    expect_near(run("AdjustHue", 7), {1, 0.5, 0.5}, near);
    expect_near(run("AdjustSaturation", 2), {1, 0, 0}, near);
    expect_near(run("AdjustSaturation", 9), {1, 0, 0}, near);
    expect_near(run("AdjustSaturation", 0), {1, 1, 1}, near);
  }
}

TEST(Color, AdjustContrast) {
  for (DType type : kAdjustTypes) {
    const Tensor images = tensor_of(type, {2, 1, 2, 2}, {1, 10, 3, 30, 0, 0, 8, 4});
    expect_near(*OpTester("AdjustContrastv2").input(images).input(Tensor::scalar(2.0F)).run_one(),
                {0, 0, 4, 40, -4, -2, 12, 6}, 0);
  }
}

TEST(Color, BadInputsAndShapes) {
  OpTester two("RGBToHSV"), scalar("RGBToHSV"), flat("AdjustContrastv2"), vector("AdjustHue");
  EXPECT_HAS(error_of(two.input(Tensor::zeros(DType::kFloat, {4, 2}).value())), "3 channels");
  EXPECT_HAS(error_of(scalar.input(Tensor::scalar(1.0F))), "INVALID_ARGUMENT");
  EXPECT_HAS(
      error_of(
          flat.input(Tensor::zeros(DType::kFloat, {4, 2}).value()).input(Tensor::scalar(1.0F))),
      "rank");
  EXPECT_HAS(error_of(vector.input(Tensor::zeros(DType::kFloat, {4, 2, 3}).value())
                          .input(Tensor::vector<float>({1}))),
             "INVALID_ARGUMENT");
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "RGBToHSV", {}, "[2,?]"), "[2,3]");
  EXPECT_EQ(*infer_shapes(ops, "AdjustHue", {}, "[2,?,?];[]"), "[2,?,3]");
  EXPECT_EQ(*infer_shapes(ops, "AdjustContrastv2", {}, "?;[]"), "?");
}

TEST(DrawBoundingBoxes, DrawsTheFrame) {
  for (DType type : kAdjustTypes) {
    OpTester op("DrawBoundingBoxes");
    op.input(tensor_of(type, {1, 4, 4, 1}, Doubles(16, 0)));
    // Rows 0 to 2, columns 1 to 3; the second has a side above the image, the third is nowhere.
    op.input(Tensor::of<float>({1, 3, 4}, {0, 0.4F, 0.7F, 1, -1, 0, 1, 0, 2, 2, 3, 3}));
    expect_near(*op.run_one(), {1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0}, 0);
  }
}

TEST(DrawBoundingBoxes, Colours) {
  const Tensor black = Tensor::zeros(DType::kFloat, {1, 1, 2, 3}).value();
  const Tensor boxes = Tensor::of<float>({1, 2, 4}, {0, 0, 0, 0, 0, 1, 0, 1});
  expect_near(*OpTester("DrawBoundingBoxes").input(black).input(boxes).run_one(),
              {1, 1, 0, 0, 0, 1}, 0);  // yellow and blue
  const Tensor colors = Tensor::of<float>({1, 3}, {0.25F, 0.5F, 0.75F});
  expect_near(*OpTester("DrawBoundingBoxesV2").input(black).input(boxes).input(colors).run_one(),
              {0.25, 0.5, 0.75, 0.25, 0.5, 0.75}, 0);
  OpTester two("DrawBoundingBoxes"), other("DrawBoundingBoxes");
  EXPECT_HAS(error_of(two.input(Tensor::zeros(DType::kFloat, {1, 1, 2, 2}).value()).input(boxes)),
             "1, 3 or 4 channels");
  EXPECT_HAS(error_of(other.input(Tensor::zeros(DType::kFloat, {2, 1, 2, 3}).value()).input(boxes)),
             "INVALID_ARGUMENT");
}

const Tensor kBoxes = Tensor::of<float>(
    {5, 4}, {0, 0, 1, 1, 0, 0.1F, 1, 1.1F, 0, -0.1F, 1, 0.9F, 0, 10, 1, 11, 1, 11.1F, 0, 10.1F});
const Tensor kScores = Tensor::vector<float>({0.9F, 0.75F, 0.6F, 0.95F, 0.5F});

TEST(NonMaxSuppression, KeepsTheHighestScores) {
  const auto first = [](int32_t most, float threshold) {
    return OpTester("NonMaxSuppression")
        .attr("iou_threshold", threshold)
        .input(kBoxes)
        .input(kScores)
        .input(Tensor::scalar(most))
        .run_one()
        .value();
  };
  EXPECT_TRUE(bit_equal(first(5, 0.5F), Tensor::vector<int32_t>({3, 0})));
  EXPECT_TRUE(bit_equal(first(1, 0.5F), Tensor::vector<int32_t>({3})));
  EXPECT_TRUE(bit_equal(first(9, 1), Tensor::vector<int32_t>({3, 0, 1, 2, 4})));
  OpTester third("NonMaxSuppressionV3"), fourth("NonMaxSuppressionV4");
  third.input(kBoxes).input(kScores).input(Tensor::scalar<int32_t>(5));
  third.input(Tensor::scalar(1.0F)).input(Tensor::scalar(0.7F));
  EXPECT_TRUE(bit_equal(*third.run_one(), Tensor::vector<int32_t>({3, 0, 1})));
  fourth.attr("pad_to_max_output_size", true).input(kBoxes).input(kScores);
  fourth.input(Tensor::scalar<int32_t>(4)).input(Tensor::scalar(0.5F)).input(Tensor::scalar(0.0F));
  const std::vector<Tensor> got = fourth.run().value();
  EXPECT_TRUE(bit_equal(got[0], Tensor::vector<int32_t>({3, 0, 0, 0})));
  EXPECT_TRUE(bit_equal(got[1], Tensor::scalar<int32_t>(2)));
}

TEST(NonMaxSuppression, HalfPrecisionAndBadInputs) {
  OpTester half("NonMaxSuppressionV2");
  half.input(tensor_of(DType::kHalf, {5, 4}, doubles_of(kBoxes)));
  half.input(tensor_of(DType::kHalf, {5}, doubles_of(kScores)));
  half.input(Tensor::scalar<int32_t>(3)).input(Tensor::scalar(0.5F));
  EXPECT_TRUE(bit_equal(*half.run_one(), Tensor::vector<int32_t>({3, 0})));
  const auto error = [](const Tensor& boxes, const Tensor& scores, int32_t most, float threshold) {
    OpTester op("NonMaxSuppressionV2");
    op.input(boxes).input(scores).input(Tensor::scalar(most)).input(Tensor::scalar(threshold));
    return error_of(op);
  };
  EXPECT_HAS(error(kBoxes, kScores, -1, 0.5F), "must not be negative");
  EXPECT_HAS(error(kBoxes, kScores, 1, 1.5F), "in [0, 1]");
  EXPECT_HAS(error(kBoxes, Tensor::vector<float>({1}), 1, 0.5F), "INVALID_ARGUMENT");
}

Result<std::vector<Tensor>> sample(OpEnv& env, const Tensor& boxes, float covered, bool whole) {
  return OpTester(env, "SampleDistortedBoundingBox")
      .name("sampler")
      .attr("seed", 3)
      .attr("min_object_covered", covered)
      .attr("area_range", std::vector<float>{0.1F, 0.5F})
      .attr("use_image_if_no_bounding_boxes", whole)
      .input(Tensor::vector<int32_t>({60, 80, 3}))
      .input(boxes)
      .run();
}

TEST(SampleDistortedBoundingBox, StaysWithinItsLimits) {
  OpEnv env;
  const Tensor object = Tensor::of<float>({1, 1, 4}, {0.4F, 0.4F, 0.6F, 0.6F});
  int different = 0, last = -1;
  for (int i = 0; i < 50; ++i) {
    Result<std::vector<Tensor>> got = sample(env, object, 0.5F, false);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    const auto begin = (*got)[0].data<int32_t>(), size = (*got)[1].data<int32_t>();
    EXPECT_EQ(begin[2], 0);
    EXPECT_EQ(size[2], -1);
    EXPECT_TRUE(begin[0] >= 0 && begin[0] + size[0] <= 60 && begin[1] >= 0 &&
                begin[1] + size[1] <= 80);
    const double area = size[0] * size[1] / 4800.0;
    EXPECT_TRUE(area >= 0.099 && area <= 0.501) << area;
    const double aspect = static_cast<double>(size[1]) / size[0];
    EXPECT_TRUE(aspect > 0.7 && aspect < 1.4) << aspect;
    const int rows = std::min(begin[0] + size[0], 36) - std::max(begin[0], 24);
    const int columns = std::min(begin[1] + size[1], 48) - std::max(begin[1], 32);
    EXPECT_GE(rows * columns, 12 * 16 / 2);
    EXPECT_NEAR((*got)[2].data<float>()[0], begin[0] / 60.0, 1e-6);
    EXPECT_NEAR((*got)[2].data<float>()[3], (begin[1] + size[1]) / 80.0, 1e-6);
    different += begin[0] * 100 + begin[1] != last;
    last = begin[0] * 100 + begin[1];
  }
  EXPECT_GT(different, 20);
}

TEST(SampleDistortedBoundingBox, WithoutObjects) {
  OpEnv env;
  const Tensor none = Tensor::zeros(DType::kFloat, {1, 0, 4}).value();
  EXPECT_TRUE(sample(env, none, 0.1F, true).ok());
  EXPECT_HAS(sample(env, none, 0.1F, false).status().to_string(), "use_image_if_no_bounding_boxes");
  const Tensor wrong = Tensor::of<float>({1, 1, 4}, {0.5F, 0, 0.4F, 1});
  EXPECT_HAS(sample(env, wrong, 0.1F, false).status().to_string(), "0 <= y1 < y2 <= 1");
}

TEST(ExtractGlimpse, KnownValues) {
  const Tensor image = Tensor::of<float>({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto glimpse = [&](float y, float x, bool centered, bool normalized) {
    return doubles_of(OpTester("ExtractGlimpse")
                          .attr("centered", centered)
                          .attr("normalized", normalized)
                          .attr("noise", "zero")
                          .input(image)
                          .input(Tensor::vector<int32_t>({2, 2}))
                          .input(Tensor::of<float>({1, 2}, {y, x}))
                          .run_one()
                          .value());
  };
  EXPECT_EQ(glimpse(2, 2, false, false), Doubles({5, 6, 8, 9}));
  EXPECT_EQ(glimpse(0, 3, false, false), Doubles({0, 0, 3, 0}));
  EXPECT_EQ(glimpse(0, 0, true, true), Doubles({1, 2, 4, 5}));
  EXPECT_EQ(glimpse(-1e30F, 5, true, true), Doubles({0, 0, 0, 0}));
}

TEST(ExtractGlimpse, NoiseIsLikeTheImage) {
  OpTester op("ExtractGlimpse");
  op.input(Tensor::of<float>({1, 1, 2, 1}, {3, 5})).input(Tensor::vector<int32_t>({20, 20}));
  for (double v : doubles_of(op.input(Tensor::of<float>({1, 2}, {0, 0})).run_one().value())) {
    EXPECT_TRUE(v >= 3 && v <= 5) << v;
  }
  OpTester bad("ExtractGlimpse");
  bad.input(Tensor::zeros(DType::kFloat, {2, 1, 2, 1}).value());
  bad.input(Tensor::vector<int32_t>({1, 1})).input(Tensor::of<float>({1, 2}, {0, 0}));
  EXPECT_HAS(error_of(bad), "INVALID_ARGUMENT");
}

}  // namespace
}  // namespace millrace
