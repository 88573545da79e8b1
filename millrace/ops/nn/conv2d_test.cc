#include <gtest/gtest.h>

#include <array>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/nn/nn_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_nn_ops});

using Ints = std::vector<int64_t>;

struct Case {
  Shape image;  // NHWC
  Shape filter;
  Ints strides = {1, 1};
  Ints dilations = {1, 1};
  std::string padding = "SAME";
  Ints explicit_pads = {};  // top, bottom, left, right
};

Shape in_layout(const Shape& nhwc, bool nchw) {
  return nchw ? Shape{nhwc[0], nhwc[3], nhwc[1], nhwc[2]} : nhwc;
}

OpTester& with_attrs(OpTester& op, const Case& c, bool nchw) {
  const auto spread = [&](const Ints& hw) {
    return nchw ? Ints{1, 1, hw[0], hw[1]} : Ints{1, hw[0], hw[1], 1};
  };
  op.attr("strides", spread(c.strides))
      .attr("dilations", spread(c.dilations))
      .attr("padding", c.padding);
  op.attr("data_format", nchw ? "NCHW" : "NHWC");
  if (!c.explicit_pads.empty()) {
    const Ints& p = c.explicit_pads;
    op.attr("explicit_paddings", nchw ? Ints{0, 0, 0, 0, p[0], p[1], p[2], p[3]}
                                      : Ints{0, 0, p[0], p[1], p[2], p[3], 0, 0});
  }
  return op;
}

Tensor shape_tensor(const Shape& shape) {
  std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  return Tensor::vector<int32_t>(std::span<const int32_t>(dims));
}

// The packed kernel against the reference, for all three products.
void compare(const Case& c, DType type, bool nchw, std::mt19937& random) {
  SCOPED_TRACE(str_cat(type, " ", c.image, " * ", c.filter, " ", c.padding, " strides ",
                       c.strides[0], ",", c.strides[1], " dilations ", c.dilations[0], ",",
                       c.dilations[1], nchw ? " NCHW" : " NHWC"));
  const Tensor image = random_tensor(type, in_layout(c.image, nchw), random);
  const Tensor filter = random_tensor(type, c.filter, random);
  const auto run = [&](const char* op, const char* label, const Tensor& a, const Tensor& b,
                       const Tensor* dy) {
    OpTester tester(op);
    with_attrs(tester, c, nchw).label(label).input(a).input(b);
    if (dy != nullptr) tester.input(*dy);
    return tester.run_one();
  };
  const auto check = [&](const char* op, const Tensor& a, const Tensor& b,
                         const Tensor* dy) -> Shape {
    const Result<Tensor> got = run(op, "", a, b, dy), want = run(op, "reference", a, b, dy);
    EXPECT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_TRUE(want.ok()) << want.status().to_string();
    if (got.ok() && want.ok()) {
      EXPECT_EQ(got->shape(), want->shape());
      expect_close(*got, doubles_of(*want), 64);
    }
    return want.ok() ? want->shape() : Shape();
  };
  const Shape out = check("Conv2D", image, filter, nullptr);
  const Tensor dy = random_tensor(type, out, random);
  check("Conv2DBackpropInput", shape_tensor(image.shape()), filter, &dy);
  check("Conv2DBackpropFilter", image, shape_tensor(filter.shape()), &dy);
}

TEST(Conv2D, KnownValue) {
  const Tensor image = Tensor::of<float>({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Tensor filter = Tensor::of<float>({2, 2, 1, 1}, {1, 2, 3, 4});
  OpTester valid("Conv2D"), same("Conv2D");
  valid.attr("strides", Ints{1, 1, 1, 1}).attr("padding", "VALID").input(image).input(filter);
  EXPECT_TRUE(bit_equal(*valid.run_one(), Tensor::of<float>({1, 2, 2, 1}, {37, 47, 67, 77})));
  same.attr("strides", Ints{1, 2, 2, 1}).attr("padding", "SAME").input(image).input(filter);
  EXPECT_TRUE(bit_equal(*same.run_one(), Tensor::of<float>({1, 2, 2, 1}, {37, 21, 23, 9})));
}

TEST(Conv2D, AgreesWithReference) {
  std::mt19937 random(4);
  const Case cases[] = {
      {{2, 5, 7, 3}, {3, 3, 3, 4}},
      {{1, 8, 8, 16}, {3, 3, 16, 33}},
      {{2, 6, 5, 2}, {2, 3, 2, 5}, {2, 2}},
      {{1, 9, 9, 2}, {1, 2, 2, 3}, {3, 4}, {1, 1}, "VALID"},  // strides beyond the window
      {{1, 12, 11, 3}, {3, 2, 3, 2}, {1, 1}, {2, 3}, "SAME"},
      {{1, 12, 11, 3}, {3, 2, 3, 2}, {2, 3}, {3, 2}, "VALID"},
      {{1, 5, 5, 2}, {3, 3, 2, 2}, {2, 1}, {1, 1}, "EXPLICIT", {2, 0, 1, 3}},
      {{3, 4, 4, 5}, {1, 1, 5, 6}},
      {{1, 4, 4, 5}, {1, 1, 5, 6}, {1, 1}, {1, 1}, "EXPLICIT", {1, 0, 0, 2}},
      {{1, 60, 50, 3}, {5, 3, 3, 2}},  // so many pixels that filter gradients are summed in parts
      {{1, 52, 52, 7}, {1, 1, 7, 2}},
      {{1, 2, 3, 700}, {1, 2, 700, 2}},  // many channels
      {{0, 4, 4, 2}, {3, 3, 2, 2}},
      {{1, 0, 4, 2}, {3, 3, 2, 2}},
      {{1, 4, 4, 0}, {3, 3, 0, 2}},
      {{1, 4, 4, 2}, {3, 3, 2, 0}},
      {{1, 2, 4, 2}, {3, 3, 2, 2}, {1, 1}, {1, 1}, "VALID"},  // no output rows
  };
  for (const Case& c : cases) {
    for (bool nchw : {false, true}) {
      for (DType type : kFloatingTypes) compare(c, type, nchw, random);
    }
  }
}

TEST(Conv2D, RandomShapesAgreeWithReference) {
  const unsigned seed = 20;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](int n) {
    return static_cast<int64_t>(random() % static_cast<unsigned>(n));
  };
  for (int round = 0; round < 60; ++round) {
    Case c;
    const int64_t channels = 1 + below(20);
    c.filter = {1 + below(4), 1 + below(4), channels, 1 + below(40)};
    c.strides = {1 + below(4), 1 + below(4)};
    c.dilations = {1 + below(2), 1 + below(3)};
    c.padding = std::array{"SAME", "VALID", "EXPLICIT"}[static_cast<size_t>(below(3))];
    if (c.padding == "EXPLICIT") c.explicit_pads = {below(4), below(4), below(4), below(4)};
    c.image = {1 + below(3), 8 + below(9), 10 + below(9), channels};
    compare(c, DType::kFloat, round % 4 == 3, random);
  }
}

TEST(Conv2D, ThreadsDoNotChangeBits) {
  std::mt19937 random(8);
  const Tensor image = random_tensor(DType::kFloat, {2, 20, 20, 24}, random);
  const Tensor filter = random_tensor(DType::kFloat, {3, 3, 24, 40}, random);
  const auto run = [&](int threads) {
    OpTester op("Conv2D");
    op.attr("strides", Ints{1, 1, 1, 1}).attr("padding", "SAME").threads(threads);
    return op.input(image).input(filter).run_one().value();
  };
  EXPECT_TRUE(bit_equal(run(1), run(4)));
}

// The optimiser's twins, in both layouts and in every type that has them: as close to the
// definition as the type allows, and by another way than the plain ops, whose bits differ.
TEST(Conv2D, CloseOpsComeCloseToTheReference) {
  std::mt19937 random(12);
  const Case c{{2, 20, 17, 64}, {3, 3, 64, 80}};
  for (const bool nchw : {false, true}) {
    for (const DType type : {DType::kFloat, DType::kHalf, DType::kBFloat16}) {
      SCOPED_TRACE(str_cat(type, nchw ? " NCHW" : " NHWC"));
      const Tensor image = random_tensor(type, in_layout(c.image, nchw), random);
      const Tensor filter = random_tensor(type, c.filter, random);
      const Tensor dy = random_tensor(type, in_layout({2, 20, 17, 80}, nchw), random);
      const auto check = [&](const std::string& op, std::initializer_list<Tensor> inputs) {
        const OpDef* const plain = OpRegistry::global().find(op);
        ASSERT_EQ(plain->traits.approximated_by, "_Close" + op);
        const auto run = [&](const std::string& name, const char* label) {
          OpTester tester(name);
          with_attrs(tester, c, nchw).label(label);
          for (const Tensor& input : inputs) tester.input(input);
          return tester.run_one().value();
        };
        const Tensor close = run("_Close" + op, "");
        // Errors are shares of the sum of the magnitudes, of hundreds of products.
        expect_close(close, doubles_of(run(op, "reference")), type == DType::kFloat ? 4096 : 4);
        if (type == DType::kFloat) EXPECT_FALSE(bit_equal(close, run(op, "")));
      };
      check("Conv2D", {image, filter});
      check("Conv2DBackpropInput", {shape_tensor(image.shape()), filter, dy});
      check("Conv2DBackpropFilter", {image, shape_tensor(filter.shape()), dy});
    }
  }
  EXPECT_FALSE(
      KernelRegistry::global().any("_CloseConv2D", DeviceKind::kCpu, {{"T", DType::kDouble}}));
}

TEST(Conv2D, InputSizesMayBeHeightAndWidthAlone) {
  const Tensor filter = Tensor::of<float>({1, 1, 1, 1}, {2}),
               dy = Tensor::of<float>({1, 1, 2, 1}, {3, 4});
  OpTester op("Conv2DBackpropInput");
  op.attr("strides", Ints{1, 1, 1, 1}).attr("padding", "VALID");
  op.input(Tensor::vector<int32_t>({1, 2})).input(filter).input(dy);
  EXPECT_TRUE(bit_equal(*op.run_one(), Tensor::of<float>({1, 1, 2, 1}, {6, 8})));
}

std::string conv_error(const Shape& image, const Shape& filter, Ints strides,
                       Ints dilations = {1, 1, 1, 1}, const char* padding = "VALID",
                       Ints pads = {}) {
  OpTester op("Conv2D");
  op.attr("strides", strides).attr("dilations", dilations).attr("padding", padding);
  if (!pads.empty()) op.attr("explicit_paddings", pads);
  return error_of(op.input(Tensor::zeros(DType::kFloat, image).value())
                      .input(Tensor::zeros(DType::kFloat, filter).value()));
}

TEST(Conv2D, BadInputs) {
  const Shape image{1, 4, 4, 2}, filter{3, 3, 2, 1};
  EXPECT_HAS(conv_error(image, filter, {1, 1}), "strides must have 4 elements");
  EXPECT_HAS(conv_error(image, filter, {1, 0, 1, 1}), "strides must be between 1");
  EXPECT_HAS(conv_error(image, filter, {2, 1, 1, 1}), "UNIMPLEMENTED");
  EXPECT_HAS(conv_error(image, filter, {1, 1, 1, 1}, {1, -1, 1, 1}), "dilations must be between 1");
  EXPECT_HAS(conv_error(image, filter, {1, int64_t{1} << 40, 1, 1}), "strides must be between 1");
  EXPECT_HAS(conv_error(image, {3, 3, 3, 1}, {1, 1, 1, 1}), "2 channels, the filter expects 3");
  EXPECT_HAS(conv_error(image, {7, 3, 2, 1}, {1, 1, 1, 1}), "needs a height of 7");
  EXPECT_HAS(conv_error(image, {0, 3, 2, 1}, {1, 1, 1, 1}), "out of range");
  EXPECT_HAS(conv_error({4, 4, 2}, filter, {1, 1, 1, 1}), "rank 4");
  EXPECT_HAS(conv_error(image, filter, {1, 1, 1, 1}, {1, 1, 1, 1}, "EXPLICIT"),
             "explicit_paddings must have 8");
  EXPECT_HAS(
      conv_error(image, filter, {1, 1, 1, 1}, {1, 1, 1, 1}, "EXPLICIT", {0, 0, -1, 0, 0, 0, 0, 0}),
      "between 0");
  EXPECT_HAS(
      conv_error(image, filter, {1, 1, 1, 1}, {1, 1, 1, 1}, "SAME", {0, 0, 1, 0, 0, 0, 0, 0}),
      "must be empty");

  const Tensor f = Tensor::zeros(DType::kFloat, filter).value();
  const auto backprop = [&](std::initializer_list<int32_t> sizes, const Shape& dy) {
    OpTester op("Conv2DBackpropInput");
    op.attr("strides", Ints{1, 1, 1, 1}).attr("padding", "VALID");
    return error_of(op.input(Tensor::vector<int32_t>(sizes))
                        .input(f)
                        .input(Tensor::zeros(DType::kFloat, dy).value()));
  };
  EXPECT_HAS(backprop({1, 4, 4, 2}, {1, 3, 2, 1}), "out_backprop must have shape [1,2,2,1]");
  EXPECT_HAS(backprop({1, 4, 4}, {1, 2, 2, 1}), "INVALID_ARGUMENT");
  EXPECT_HAS(backprop({1, -4, 4, 2}, {1, 2, 2, 1}), "INVALID_ARGUMENT");
}

TEST(Conv2D, HugeWindowOfAnEmptyFilter) {
  OpTester op("Conv2D");
  op.attr("strides", Ints{1, 1, 1, 1}).attr("padding", "SAME");
  op.input(Tensor::zeros(DType::kFloat, {1, 2, 2, 0}).value());
  op.input(Tensor::zeros(DType::kFloat, {2000000000, 2000000000, 0, 1}).value());
  EXPECT_TRUE(bit_equal(*op.run_one(), Tensor::of<float>({1, 2, 2, 1}, {0, 0, 0, 0})));
}

TEST(Conv2D, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  const AttrMap same = {{"strides", Ints{1, 2, 2, 1}}, {"padding", "SAME"}};
  const AttrMap valid = {{"strides", Ints{1, 1, 1, 1}}, {"padding", "VALID"}};
  const AttrMap nchw = {
      {"strides", Ints{1, 1, 2, 2}}, {"padding", "SAME"}, {"data_format", "NCHW"}};
  EXPECT_EQ(*infer_shapes(ops, "Conv2D", same, "[8,7,?,3];[3,3,3,5]"), "[8,4,?,5]");
  EXPECT_EQ(*infer_shapes(ops, "Conv2D", valid, "[?,7,7,3];[3,?,?,?]"), "[?,5,?,?]");
  EXPECT_EQ(*infer_shapes(ops, "Conv2D", valid, "?;?"), "[?,?,?,?]");
  EXPECT_EQ(*infer_shapes(ops, "Conv2D", nchw, "[8,3,7,9];[3,3,3,5]"), "[8,5,4,5]");
  EXPECT_FALSE(infer_shapes(ops, "Conv2D", valid, "[8,7,7,3];[3,3,4,5]").ok());
  EXPECT_FALSE(infer_shapes(ops, "Conv2D", valid, "[8,2,7,3];[4,3,3,5]").ok());
  EXPECT_EQ(*infer_shapes(ops, "Conv2DBackpropInput", same, "=[8,7,?,3];[3,3,3,5];[8,?,?,5]"),
            "[8,7,?,3]");
  EXPECT_EQ(*infer_shapes(ops, "Conv2DBackpropInput", same, "?;[3,3,3,5];[8,?,?,5]"), "[8,?,?,3]");
  EXPECT_EQ(*infer_shapes(ops, "Conv2DBackpropFilter", same, "[8,7,7,3];=[3,3,3,5];?"),
            "[3,3,3,5]");
  EXPECT_EQ(*infer_shapes(ops, "Conv2DBackpropFilter", same, "[8,7,7,3];?;[8,4,4,5]"), "[?,?,3,5]");
}

}  // namespace
}  // namespace millrace
