#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/nn/nn_testing.h"
#include "millrace/ops/nn/window_geometry.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_nn_ops});

using Ints = std::vector<int64_t>;

struct Case {
  Shape image;  // NHWC
  int64_t window_h, window_w, stride_h, stride_w;
  std::string padding;
};

const Case kCases[] = {
    {{2, 5, 7, 3}, 2, 2, 2, 2, "SAME"},  {{2, 5, 7, 3}, 3, 2, 1, 2, "VALID"},
    {{1, 8, 8, 40}, 3, 3, 2, 2, "SAME"}, {{1, 9, 9, 2}, 1, 2, 3, 4, "VALID"},
    {{1, 4, 4, 1}, 5, 5, 1, 1, "SAME"},  {{0, 4, 4, 2}, 2, 2, 2, 2, "SAME"},
    {{2, 0, 4, 2}, 2, 2, 2, 2, "SAME"},  {{2, 4, 4, 0}, 2, 2, 2, 2, "VALID"},
    {{1, 1, 4, 2}, 2, 2, 2, 2, "VALID"}, {{2, 7, 9, 86}, 3, 3, 2, 2, "SAME"},
};

Shape in_layout(const Shape& nhwc, bool nchw) {
  return nchw ? Shape{nhwc[0], nhwc[3], nhwc[1], nhwc[2]} : nhwc;
}

OpTester& with_attrs(OpTester& op, const Case& c, bool nchw) {
  const auto spread = [&](int64_t h, int64_t w) {
    return nchw ? Ints{1, 1, h, w} : Ints{1, h, w, 1};
  };
  return op.attr("ksize", spread(c.window_h, c.window_w))
      .attr("strides", spread(c.stride_h, c.stride_w))
      .attr("padding", c.padding)
      .attr("data_format", nchw ? "NCHW" : "NHWC");
}

// Calls f(output element, elements of its window) in row-major order of windows.
template <class F>
void for_each_window(const Case& c, bool nchw, F f) {
  const bool same = c.padding == "SAME";
  const int64_t h = c.image[1], w = c.image[2], channels = c.image[3];
  const auto out_size = [&](int64_t in, int64_t window, int64_t stride) {
    return same ? (in + stride - 1) / stride : (in - window + stride) / stride;
  };
  const int64_t oh = out_size(h, c.window_h, c.stride_h), ow = out_size(w, c.window_w, c.stride_w);
  const int64_t top = same ? std::max<int64_t>(0, (oh - 1) * c.stride_h + c.window_h - h) / 2 : 0;
  const int64_t left = same ? std::max<int64_t>(0, (ow - 1) * c.stride_w + c.window_w - w) / 2 : 0;
  const auto at = [&](int64_t n, int64_t y, int64_t x, int64_t ch, int64_t height, int64_t width) {
    return static_cast<size_t>(nchw ? ((n * channels + ch) * height + y) * width + x
                                    : ((n * height + y) * width + x) * channels + ch);
  };
  for (int64_t n = 0; n < c.image[0]; ++n) {
    for (int64_t y = 0; y < oh; ++y) {
      for (int64_t x = 0; x < ow; ++x) {
        for (int64_t ch = 0; ch < channels; ++ch) {
          std::vector<size_t> window;
          for (int64_t iy = y * c.stride_h - top; iy < y * c.stride_h - top + c.window_h; ++iy) {
            for (int64_t ix = x * c.stride_w - left; ix < x * c.stride_w - left + c.window_w;
                 ++ix) {
              if (iy >= 0 && iy < h && ix >= 0 && ix < w) window.push_back(at(n, iy, ix, ch, h, w));
            }
          }
          f(at(n, y, x, ch, oh, ow), window);
        }
      }
    }
  }
}

template <class F>
void for_each_case(F f) {
  for (const Case& c : kCases) {
    for (bool nchw : {false, true}) {
      for (DType type : kFloatingTypes) {
        SCOPED_TRACE(str_cat(type, " ", c.image, " ", c.padding, nchw ? " NCHW" : " NHWC"));
        f(c, nchw, type);
      }
    }
  }
}

TEST(MaxPool, AgreesWithTheDefinition) {
  std::mt19937 random(1);
  for_each_case([&](const Case& c, bool nchw, DType type) {
    const Tensor image = random_tensor(type, in_layout(c.image, nchw), random);
    OpTester pool("MaxPool");
    const Result<Tensor> y = with_attrs(pool, c, nchw).input(image).run_one();
    ASSERT_TRUE(y.ok()) << y.status().to_string();
    const Tensor dy = random_tensor(type, y->shape(), random);
    const Tensor ddx = random_tensor(type, image.shape(), random);
    const std::vector<double> x = doubles_of(image), g = doubles_of(dy), gg = doubles_of(ddx);
    std::vector<double> want(g.size()), want_grad(x.size()), want_grad_grad(g.size());
    for_each_window(c, nchw, [&](size_t out, const std::vector<size_t>& window) {
      size_t best = window.at(0);
      for (size_t i : window) best = x[i] > x[best] ? i : best;
      want[out] = x[best];
      want_grad[best] += g[out];
      want_grad_grad[out] = gg[best];
    });
    expect_close(*y, want);
    OpTester grad("MaxPoolGrad"), grad_grad("MaxPoolGradGrad");
    expect_close(with_attrs(grad, c, nchw).input(image).input(*y).input(dy).run_one().value(),
                 want_grad);
    expect_close(with_attrs(grad_grad, c, nchw).input(image).input(*y).input(ddx).run_one().value(),
                 want_grad_grad);
  });
}

TEST(MaxPool, NanIsTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor image = Tensor::of<float>({1, 1, 4, 1}, {1, nan, 3, 2});
  OpTester pool("MaxPool");
  const Tensor y =
      with_attrs(pool, {{}, 1, 2, 1, 2, "VALID"}, false).input(image).run_one().value();
  EXPECT_TRUE(std::isnan(y.data<float>()[0]));
  EXPECT_EQ(y.data<float>()[1], 3);
}

// Among numbers of which many are equal, and some NaN: the first NaN of a window is its largest
// element, or else the first of the largest ones.
TEST(MaxPool, GradientsGoToTheFirstOfEqualElements) {
  std::mt19937 random(3);
  const Case c{{2, 9, 8, 86}, 3, 3, 2, 2, "SAME"};
  for (DType type : kFloatingTypes) {
    SCOPED_TRACE(str_cat(type));
    std::vector<double> x(static_cast<size_t>(c.image.num_elements()));
    for (double& v : x) {
      v = static_cast<double>(random() % 3);
      if (random() % 8 == 0) v = std::nan("");
    }
    const Tensor image = tensor_of(type, c.image, x);
    OpTester pool("MaxPool"), grad("MaxPoolGrad"), grad_grad("MaxPoolGradGrad");
    const Tensor y = with_attrs(pool, c, false).input(image).run_one().value();
    const Tensor dy = random_tensor(type, y.shape(), random);
    const Tensor ddx = random_tensor(type, image.shape(), random);
    const std::vector<double> g = doubles_of(dy), gg = doubles_of(ddx);
    std::vector<double> want(g.size()), want_grad(x.size()), want_grad_grad(g.size());
    for_each_window(c, false, [&](size_t out, const std::vector<size_t>& window) {
      size_t best = window.at(0);
      for (size_t i : window) {
        if (x[i] > x[best] || (std::isnan(x[i]) && !std::isnan(x[best]))) best = i;
      }
      want[out] = x[best];
      want_grad[best] += g[out];
      want_grad_grad[out] = gg[best];
    });
    expect_close(y, want);
    expect_close(with_attrs(grad, c, false).input(image).input(y).input(dy).run_one().value(),
                 want_grad);
    expect_close(with_attrs(grad_grad, c, false).input(image).input(y).input(ddx).run_one().value(),
                 want_grad_grad);
  }
}

TEST(AvgPool, AgreesWithTheDefinition) {
  std::mt19937 random(2);
  for_each_case([&](const Case& c, bool nchw, DType type) {
    const Tensor image = random_tensor(type, in_layout(c.image, nchw), random);
    OpTester pool("AvgPool");
    const Result<Tensor> y = with_attrs(pool, c, nchw).input(image).run_one();
    ASSERT_TRUE(y.ok()) << y.status().to_string();
    const Tensor dy = random_tensor(type, y->shape(), random);
    const std::vector<double> x = doubles_of(image), g = doubles_of(dy);
    std::vector<double> want(g.size()), want_grad(x.size());
    for_each_window(c, nchw, [&](size_t out, const std::vector<size_t>& window) {
      const double share = 1.0 / static_cast<double>(window.size());
      for (size_t i : window) {
        want[out] += x[i] * share;
        want_grad[i] += g[out] * share;
      }
    });
    expect_close(*y, want);
    std::vector<int32_t> dims(image.shape().dims().begin(), image.shape().dims().end());
    OpTester grad("AvgPoolGrad");
    with_attrs(grad, c, nchw)
        .input(Tensor::vector<int32_t>(std::span<const int32_t>(dims)))
        .input(dy);
    expect_close(grad.run_one().value(), want_grad, 8);
  });
}

// To the bit: sums of floats that round, in the order of windows and of elements in a window.
TEST(Pools, AddInOrder) {
  const Case c{{2, 9, 11, 86}, 3, 3, 1, 1, "SAME"};
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  const auto numbers = [&] {
    Tensor t = Tensor::allocate(DType::kFloat, c.image).value();
    for (float& v : t.mutable_data<float>()) v = normal(random);
    return t;
  };
  const Tensor image = numbers(), dy = numbers();
  const float *x = image.data<float>().data(), *g = dy.data<float>().data();
  const auto size = static_cast<size_t>(c.image.num_elements());
  std::vector<float> average(size), average_grad(size), max_grad(size);
  for_each_window(c, false, [&](size_t out, const std::vector<size_t>& window) {
    const auto count = static_cast<float>(window.size());
    size_t best = window.at(0);
    for (size_t i : window) {
      average[out] += x[i];
      average_grad[i] += g[out] / count;
      if (x[i] > x[best]) best = i;
    }
    average[out] /= count;
    max_grad[best] += g[out];
  });
  const auto expect_bits = [](const Result<Tensor>& got, const std::vector<float>& want) {
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    const std::span<const float> bits = got->data<float>();
    EXPECT_TRUE(std::equal(bits.begin(), bits.end(), want.begin(), want.end()));
  };
  OpTester avg("AvgPool"), avg_grad("AvgPoolGrad"), pool("MaxPool"), grad("MaxPoolGrad");
  expect_bits(with_attrs(avg, c, false).input(image).run_one(), average);
  const Tensor sizes = Tensor::vector<int32_t>({2, 9, 11, 86});
  expect_bits(with_attrs(avg_grad, c, false).input(sizes).input(dy).run_one(), average_grad);
  const Tensor y = with_attrs(pool, c, false).input(image).run_one().value();
  expect_bits(with_attrs(grad, c, false).input(image).input(y).input(dy).run_one(), max_grad);
}

TEST(Pools, BadInputs) {
  const Tensor image = Tensor::zeros(DType::kFloat, {1, 4, 4, 2}).value();
  const auto pool = [&](const char* op, Ints ksize, Ints strides, const Tensor& input) {
    return error_of(OpTester(op)
                        .attr("ksize", ksize)
                        .attr("strides", strides)
                        .attr("padding", "VALID")
                        .input(input));
  };
  for (const char* op : {"MaxPool", "AvgPool"}) {
    SCOPED_TRACE(op);
    EXPECT_HAS(pool(op, {1, 2, 2, 1}, {1, 0, 1, 1}, image), "strides must be between 1");
    EXPECT_HAS(pool(op, {1, 0, 2, 1}, {1, 1, 1, 1}, image), "ksize must be between 1");
    EXPECT_HAS(pool(op, {2, 2, 2, 1}, {1, 1, 1, 1}, image), "UNIMPLEMENTED");
    EXPECT_HAS(pool(op, {1, 7, 2, 1}, {1, 1, 1, 1}, image), "needs a height of 7");
    EXPECT_HAS(pool(op, {1, 2, 2, 1, 1}, {1, 1, 1, 1}, image), "ksize must have 4 elements");
    EXPECT_HAS(pool(op, {1, 2, 2, 1}, {1, 1, 1, 1}, Tensor::scalar(1.0f)), "rank 4");
  }
  const Case c{{1, 4, 4, 2}, 2, 2, 2, 2, "VALID"};
  const Tensor good = Tensor::zeros(DType::kFloat, {1, 2, 2, 2}).value();
  const Tensor bad = Tensor::zeros(DType::kFloat, {1, 3, 2, 2}).value();
  OpTester grad1("MaxPoolGrad"), grad2("MaxPoolGrad"), grad3("MaxPoolGradGrad"),
      grad4("AvgPoolGrad"), grad5("AvgPoolGrad");
  EXPECT_HAS(error_of(with_attrs(grad1, c, false).input(image).input(good).input(bad)),
             "grad must have shape [1,2,2,2]");
  EXPECT_HAS(error_of(with_attrs(grad2, c, false).input(image).input(bad).input(good)),
             "orig_output must have shape");
  EXPECT_HAS(error_of(with_attrs(grad3, c, false).input(image).input(good).input(good)),
             "grad must have shape [1,4,4,2]");
  EXPECT_HAS(
      error_of(with_attrs(grad4, c, false).input(Tensor::vector<int32_t>({1, 4, 4, 2})).input(bad)),
      "grad must have shape");
  EXPECT_HAS(
      error_of(
          with_attrs(grad5, c, false).input(Tensor::vector<int32_t>({1, 4, -4, 2})).input(good)),
      "INVALID_ARGUMENT");
}

TEST(Pools, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  const AttrMap attrs = {
      {"ksize", Ints{1, 2, 3, 1}}, {"strides", Ints{1, 2, 2, 1}}, {"padding", "VALID"}};
  EXPECT_EQ(*infer_shapes(ops, "MaxPool", attrs, "[?,7,8,3]"), "[?,3,3,3]");
  EXPECT_EQ(*infer_shapes(ops, "AvgPool", attrs, "?"), "[?,?,?,?]");
  EXPECT_EQ(*infer_shapes(ops, "MaxPoolGrad", attrs, "[1,?,4,2];?;?"), "[1,?,4,2]");
  EXPECT_EQ(*infer_shapes(ops, "AvgPoolGrad", attrs, "=[1,?,4,2];?"), "[1,?,4,2]");
  EXPECT_FALSE(infer_shapes(ops, "MaxPool", attrs, "[7,8,3]").ok());
}

TEST(WindowGeometry, Sizes) {
  const WindowAxis axis{
      .window = 3, .stride = 2, .dilation = 2, .explicit_before = 1, .explicit_after = 4};
  const AxisGeometry same = axis_geometry(axis, Padding::kSame, 6, "height").value();
  EXPECT_EQ(same.output, 3);
  EXPECT_EQ(same.before, 1);  // 3 in all, the larger half behind
  EXPECT_EQ(same.first(0), 1);
  EXPECT_EQ(same.last(2), 2);
  EXPECT_EQ(axis_geometry(axis, Padding::kValid, 6, "height")->output, 1);
  EXPECT_EQ(axis_geometry(axis, Padding::kExplicit, 6, "height")->output, 4);
  EXPECT_FALSE(axis_geometry(axis, Padding::kValid, 2, "height").ok());
  EXPECT_FALSE(axis_geometry(axis, Padding::kSame, int64_t{1} << 62, "height").ok());
}

}  // namespace
}  // namespace millrace
