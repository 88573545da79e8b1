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
  Shape image;   // NHWC
  Shape filter;  // [height, width, channels, multiplier]
  Ints strides = {1, 1};
  Ints dilations = {1, 1};
  std::string padding = "SAME";
  Ints pads = {0, 0, 0, 0};  // top, bottom, left, right, for EXPLICIT
};

// Where a window begins, and how many there are.
struct Axis {
  int64_t before, output;
};
Axis axis(const Case& c, int d) {
  const auto i = static_cast<size_t>(d);
  const int64_t input = c.image[d + 1], stride = c.strides[i];
  const int64_t reach = (c.filter[d] - 1) * c.dilations[i] + 1;
  if (c.padding == "SAME") {
    const int64_t output = (input + stride - 1) / stride;
    return {std::max<int64_t>(0, (output - 1) * stride + reach - input) / 2, output};
  }
  const int64_t before = c.padding == "EXPLICIT" ? c.pads[2 * i] : 0;
  const int64_t after = c.padding == "EXPLICIT" ? c.pads[2 * i + 1] : 0;
  return {before, (input + before + after - reach) / stride + 1};
}

Shape output_shape(const Case& c) {
  return {c.image[0], axis(c, 0).output, axis(c, 1).output, c.filter[2] * c.filter[3]};
}

// Calls f(image element, filter element, output element) for every product of the definition.
template <class F>
void for_each_product(const Case& c, F f) {
  const Shape out = output_shape(c);
  const int64_t channels = c.filter[2], multiplier = c.filter[3];
  for (int64_t n = 0; n < out[0]; ++n) {
    for (int64_t oy = 0; oy < out[1]; ++oy) {
      for (int64_t ox = 0; ox < out[2]; ++ox) {
        for (int64_t fy = 0; fy < c.filter[0]; ++fy) {
          for (int64_t fx = 0; fx < c.filter[1]; ++fx) {
            const int64_t y = oy * c.strides[0] - axis(c, 0).before + fy * c.dilations[0];
            const int64_t x = ox * c.strides[1] - axis(c, 1).before + fx * c.dilations[1];
            if (y < 0 || y >= c.image[1] || x < 0 || x >= c.image[2]) continue;
            for (int64_t k = 0; k < channels * multiplier; ++k) {
              f(((n * c.image[1] + y) * c.image[2] + x) * channels + k / multiplier,
                (fy * c.filter[1] + fx) * channels * multiplier + k,
                ((n * out[1] + oy) * out[2] + ox) * channels * multiplier + k);
            }
          }
        }
      }
    }
  }
}

// Between NHWC and NCHW, elements of any type.
Tensor transposed(const Tensor& t, bool to_nchw) {
  const Shape& s = t.shape();
  const std::array<int, 4> order =
      to_nchw ? std::array<int, 4>{0, 3, 1, 2} : std::array<int, 4>{0, 2, 3, 1};
  const Shape shape{s[order[0]], s[order[1]], s[order[2]], s[order[3]]};
  const std::vector<double> from = doubles_of(t);
  std::vector<double> to(from.size());
  size_t at = 0;
  std::array<int64_t, 4> i{};
  for (i[0] = 0; i[0] < shape[0]; ++i[0]) {
    for (i[1] = 0; i[1] < shape[1]; ++i[1]) {
      for (i[2] = 0; i[2] < shape[2]; ++i[2]) {
        for (i[3] = 0; i[3] < shape[3]; ++i[3]) {
          std::array<int64_t, 4> j{};
          for (size_t d = 0; d < 4; ++d) j[static_cast<size_t>(order[d])] = i[d];
          to[at++] = from[static_cast<size_t>(((j[0] * s[1] + j[1]) * s[2] + j[2]) * s[3] + j[3])];
        }
      }
    }
  }
  return tensor_of(t.dtype(), shape, to);
}

Tensor shape_tensor(const Shape& shape) {
  std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  return Tensor::vector<int32_t>(std::span<const int32_t>(dims));
}

Result<Tensor> run(const char* op, const Case& c, bool nchw, std::vector<Tensor> inputs,
                   int threads = 0) {
  const auto spread = [&](const Ints& hw) {
    return nchw ? Ints{1, 1, hw[0], hw[1]} : Ints{1, hw[0], hw[1], 1};
  };
  OpTester tester(op);
  tester.attr("strides", spread(c.strides)).attr("dilations", spread(c.dilations));
  tester.attr("padding", c.padding).attr("data_format", nchw ? "NCHW" : "NHWC");
  if (c.padding == "EXPLICIT") {
    const Ints& p = c.pads;
    tester.attr("explicit_paddings", nchw ? Ints{0, 0, 0, 0, p[0], p[1], p[2], p[3]}
                                          : Ints{0, 0, p[0], p[1], p[2], p[3], 0, 0});
  }
  if (threads > 0) tester.threads(threads);
  for (Tensor& input : inputs) tester.input(std::move(input));
  return tester.run_one();
}

void compare(const Case& c, DType type, bool nchw, std::mt19937& random) {
  SCOPED_TRACE(str_cat(type, " ", c.image, " * ", c.filter, " ", c.padding, " strides ",
                       str_join(c.strides, ","), " dilations ", str_join(c.dilations, ","),
                       nchw ? " NCHW" : " NHWC"));
  const Shape out = output_shape(c);
  const Tensor image = random_tensor(type, c.image, random);
  const Tensor filter = random_tensor(type, c.filter, random);
  const Tensor dy = random_tensor(type, out, random);
  const std::vector<double> x = doubles_of(image), f = doubles_of(filter), g = doubles_of(dy);
  std::vector<double> y(g.size()), dx(x.size()), df(f.size());
  for_each_product(c, [&](int64_t i, int64_t j, int64_t o) {
    const auto a = static_cast<size_t>(i), b = static_cast<size_t>(j), k = static_cast<size_t>(o);
    y[k] += x[a] * f[b];
    dx[a] += g[k] * f[b];
    df[b] += g[k] * x[a];
  });
  const auto laid_out = [&](const Tensor& t) { return nchw ? transposed(t, true) : t; };
  const auto check = [&](const char* op, std::vector<Tensor> inputs,
                         const std::vector<double>& want, bool is_filter) {
    Result<Tensor> got = run(op, c, nchw, std::move(inputs));
    ASSERT_TRUE(got.ok()) << op << " " << got.status().to_string();
    expect_close(nchw && !is_filter ? transposed(*got, false) : *got, want, 32);
  };
  const Shape sizes = laid_out(image).shape();
  check("DepthwiseConv2dNative", {laid_out(image), filter}, y, false);
  check("DepthwiseConv2dNativeBackpropInput", {shape_tensor(sizes), filter, laid_out(dy)}, dx,
        false);
  check("DepthwiseConv2dNativeBackpropFilter",
        {laid_out(image), shape_tensor(c.filter), laid_out(dy)}, df, true);
}

TEST(DepthwiseConv, AgreesWithDefinition) {
  std::mt19937 random(3);
  const Case cases[] = {
      {{2, 5, 7, 3}, {3, 3, 3, 1}},
      {{1, 6, 9, 35}, {3, 2, 35, 1}},
      {{2, 6, 5, 4}, {2, 3, 4, 3}, {2, 2}},
      {{1, 9, 9, 2}, {1, 2, 2, 1}, {3, 4}, {1, 1}, "VALID"},  // strides beyond the window
      {{1, 12, 11, 17}, {3, 2, 17, 2}, {1, 1}, {2, 3}, "SAME"},
      {{1, 12, 11, 3}, {3, 2, 3, 2}, {2, 3}, {3, 2}, "VALID"},
      {{1, 5, 5, 16}, {3, 3, 16, 1}, {2, 1}, {1, 1}, "EXPLICIT", {2, 0, 1, 3}},
      {{3, 4, 4, 5}, {1, 1, 5, 2}},
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

TEST(DepthwiseConv, ThreadsDoNotChangeBits) {
  std::mt19937 random(8);
  const Case c{{3, 20, 20, 24}, {3, 3, 24, 2}};
  const Tensor image = random_tensor(DType::kFloat, c.image, random);
  const Tensor dy = random_tensor(DType::kFloat, output_shape(c), random);
  const auto filter = [&](int threads) {
    return run("DepthwiseConv2dNativeBackpropFilter", c, false, {image, shape_tensor(c.filter), dy},
               threads)
        .value();
  };
  EXPECT_TRUE(bit_equal(filter(1), filter(4)));
}

TEST(DepthwiseConv, BadInputs) {
  const auto error = [](const Shape& image, const Shape& filter, const Ints& strides) {
    OpTester op("DepthwiseConv2dNative");
    op.attr("strides", strides).attr("padding", "VALID");
    return error_of(op.input(Tensor::zeros(DType::kFloat, image).value())
                        .input(Tensor::zeros(DType::kFloat, filter).value()));
  };
  EXPECT_HAS(error({1, 4, 4, 2}, {3, 3, 3, 1}, {1, 1, 1, 1}), "2 channels, the filter expects 3");
  EXPECT_HAS(error({1, 4, 4, 2}, {7, 3, 2, 1}, {1, 1, 1, 1}), "needs a height of 7");
  EXPECT_HAS(error({4, 4, 2}, {3, 3, 2, 1}, {1, 1, 1, 1}), "rank 4");
  EXPECT_HAS(error({1, 4, 4, 2}, {3, 3, 2, 1}, {1, 0, 1, 1}), "strides must be between 1");
  const Case c{{1, 4, 4, 2}, {3, 3, 2, 1}};
  const Tensor filter = Tensor::zeros(DType::kFloat, c.filter).value();
  Result<Tensor> wrong =
      run("DepthwiseConv2dNativeBackpropInput", c, false,
          {shape_tensor(c.image), filter, Tensor::zeros(DType::kFloat, {1, 4, 3, 2}).value()});
  EXPECT_HAS(wrong.status().to_string(), "out_backprop must have shape [1,4,4,2]");
}

TEST(DepthwiseConv, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  const AttrMap same = {{"strides", Ints{1, 2, 2, 1}}, {"padding", "SAME"}};
  EXPECT_EQ(*infer_shapes(ops, "DepthwiseConv2dNative", same, "[8,7,?,3];[3,3,3,2]"), "[8,4,?,6]");
  EXPECT_EQ(*infer_shapes(ops, "DepthwiseConv2dNative", same, "[8,7,9,3];[3,3,?,2]"), "[8,4,5,6]");
  EXPECT_EQ(*infer_shapes(ops, "DepthwiseConv2dNative", same, "?;?"), "[?,?,?,?]");
  EXPECT_FALSE(infer_shapes(ops, "DepthwiseConv2dNative", same, "[8,7,7,3];[3,3,4,5]").ok());
  EXPECT_EQ(*infer_shapes(ops, "DepthwiseConv2dNativeBackpropInput", same,
                          "=[8,7,?,3];[3,3,3,5];[8,?,?,15]"),
            "[8,7,?,3]");
  EXPECT_EQ(
      *infer_shapes(ops, "DepthwiseConv2dNativeBackpropFilter", same, "[8,7,7,3];=[3,3,3,5];?"),
      "[3,3,3,5]");
}

}  // namespace
}  // namespace millrace
