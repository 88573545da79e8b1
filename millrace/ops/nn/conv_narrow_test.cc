// test-labels: threads
#include "millrace/ops/nn/conv_narrow.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

AxisGeometry axis(int64_t input, int64_t window, int64_t stride, int64_t before, int64_t after) {
  return {.input = input,
          .window = window,
          .stride = stride,
          .before = before,
          .output = (input + before + after - window) / stride + 1};
}

// Windows inside the images; over some sides, and all; farther than the images reach; steps wider
// than windows; one pixel.
const ConvGeometry kGeometries[] = {
    {2, axis(19, 5, 2, 0, 0), axis(23, 4, 1, 0, 0), 3, 64},
    {3, axis(13, 3, 1, 1, 1), axis(17, 3, 1, 1, 1), 3, 32},
    {2, axis(24, 7, 2, 3, 3), axis(21, 7, 2, 2, 3), 3, 96},
    {1, axis(9, 11, 4, 5, 6), axis(30, 11, 4, 0, 8), 4, 16},
    {2, axis(7, 1, 3, 2, 0), axis(8, 2, 5, 0, 4), 1, 80},
    {5, axis(1, 1, 1, 0, 0), axis(1, 1, 4, 3, 0), 2, 48},
};

// Windows at every pixel, of more channels.
const ConvGeometry kAtEveryPixel[] = {
    {2, axis(14, 3, 1, 1, 1), axis(15, 3, 1, 1, 1), 32, 48},
    {1, axis(6, 5, 1, 4, 0), axis(20, 5, 1, 0, 2), 16, 80},
    {3, axis(9, 1, 1, 0, 0), axis(12, 2, 1, 0, 1), 16, 16},
};

template <class T>
std::vector<T> small_numbers(int64_t count, std::mt19937& random) {
  std::vector<T> v(static_cast<size_t>(count));
  for (T& x : v) x = static_cast<T>(static_cast<int>(random() % 7) - 3);
  return v;
}

// Calls body(element of the image, of the filter, of the output) for all products; elements are
// those of the first channel and filter.
template <class F>
void for_all_products(const ConvGeometry& g, F body) {
  const AxisGeometry &h = g.height, &w = g.width;
  for (int64_t out = 0; out < g.batch * h.output * w.output; ++out) {
    const int64_t n = out / w.output / h.output, oy = out / w.output % h.output;
    const int64_t ox = out % w.output;
    for (int64_t fy = h.first(oy); fy < h.last(oy); ++fy) {
      for (int64_t fx = w.first(ox); fx < w.last(ox); ++fx) {
        const int64_t y = h.origin(oy) + fy, x = w.origin(ox) + fx;
        body(((n * h.input + y) * w.input + x) * g.in_channels,
             (fy * w.window + fx) * g.in_channels * g.out_channels, out * g.out_channels);
      }
    }
  }
}

template <class T>
class ConvNarrowTyped : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ConvNarrowTyped, Types);

template <class T>
void expect_the_definition(const ConvGeometry& g, std::mt19937& random) {
  ASSERT_TRUE(is_narrow_forward<T>(g) && is_narrow_filter_gradient<T>(g));
  const int64_t pixels = g.batch * g.height.output * g.width.output;
  const auto image =
      small_numbers<T>(g.batch * g.height.input * g.width.input * g.in_channels, random);
  const auto filter =
      small_numbers<T>(g.height.window * g.width.window * g.in_channels * g.out_channels, random);
  const auto dy = small_numbers<T>(pixels * g.out_channels, random);
  std::vector<T> out(dy.size(), 9), filter_gradient(filter.size(), 9), dx(image.size(), 9);
  std::vector<T> want_out(dy.size()), want_gradient(filter.size()), want_dx(image.size());
  for_all_products(g, [&](int64_t at_image, int64_t at_filter, int64_t at_out) {
    for (int64_t c = 0; c < g.in_channels; ++c) {
      for (int64_t f = 0; f < g.out_channels; ++f) {
        const auto i = static_cast<size_t>(at_image + c), o = static_cast<size_t>(at_out + f);
        const auto w = static_cast<size_t>(at_filter + c * g.out_channels + f);
        want_out[o] += image[i] * filter[w];
        want_gradient[w] += image[i] * dy[o];
        want_dx[i] += filter[w] * dy[o];
      }
    }
  });
  ASSERT_TRUE(conv_forward_narrow(g, image.data(), filter.data(), out.data(), run_serially).ok());
  EXPECT_EQ(out, want_out);
  ASSERT_TRUE(
      conv_backward_filter_narrow(g, image.data(), dy.data(), filter_gradient.data(), run_serially)
          .ok());
  EXPECT_EQ(filter_gradient, want_gradient);
  if (!is_narrow_input_gradient<T>(g)) return;
  ASSERT_TRUE(
      conv_backward_input_narrow(g, filter.data(), dy.data(), dx.data(), run_serially).ok());
  EXPECT_EQ(dx, want_dx);
}

TYPED_TEST(ConvNarrowTyped, AgreesWithTheDefinition) {
  std::mt19937 random(4);
  for (const ConvGeometry& g : kGeometries) {
    SCOPED_TRACE(testing::Message() << &g - kGeometries);
    expect_the_definition<TypeParam>(g, random);
  }
}

TYPED_TEST(ConvNarrowTyped, AgreesWithTheDefinitionAtEveryPixel) {
  std::mt19937 random(6);
  for (const ConvGeometry& g : kAtEveryPixel) {
    SCOPED_TRACE(testing::Message() << &g - kAtEveryPixel);
    EXPECT_TRUE(is_narrow_input_gradient<TypeParam>(g));
    expect_the_definition<TypeParam>(g, random);
  }
}

// With numbers whose sums round.
TEST(ConvNarrow, ThreadsDoNotChangeBits) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto numbers = [&](int64_t count) {
    std::vector<float> v(static_cast<size_t>(count));
    for (float& x : v) x = uniform(random);
    return v;
  };
  ThreadPool pool(4);
  const auto on_pool = [&](int64_t units, double cost, FunctionRef<void(int64_t, int64_t)> body) {
    pool.parallel_for(units, cost, body);
  };
  for (const ConvGeometry& g :
       {ConvGeometry{4, axis(64, 7, 2, 3, 3), axis(60, 7, 2, 3, 3), 3, 64},
        ConvGeometry{8, axis(28, 5, 1, 2, 2), axis(28, 5, 1, 2, 2), 16, 32}}) {
    const int64_t pixels = g.batch * g.height.output * g.width.output;
    const auto image = numbers(g.batch * g.height.input * g.width.input * g.in_channels);
    const auto filter = numbers(g.height.window * g.width.window * g.in_channels * g.out_channels);
    const auto dy = numbers(pixels * g.out_channels);
    const auto expect_same = [&](size_t size, auto compute) {
      std::vector<float> one(size), four(size);
      ASSERT_TRUE(compute(one.data(), ParallelFor(run_serially)).ok());
      ASSERT_TRUE(compute(four.data(), ParallelFor(on_pool)).ok());
      EXPECT_EQ(std::memcmp(one.data(), four.data(), size * sizeof(float)), 0);
    };
    expect_same(dy.size(), [&](float* out, ParallelFor parallel_for) {
      return conv_forward_narrow(g, image.data(), filter.data(), out, parallel_for);
    });
    expect_same(filter.size(), [&](float* out, ParallelFor parallel_for) {
      return conv_backward_filter_narrow(g, image.data(), dy.data(), out, parallel_for);
    });
    if (!is_narrow_input_gradient<float>(g)) continue;
    expect_same(image.size(), [&](float* out, ParallelFor parallel_for) {
      return conv_backward_input_narrow(g, filter.data(), dy.data(), out, parallel_for);
    });
  }
}

// Where the general functions come in.
TEST(ConvNarrow, IsForFewChannelsAndWholeVectorsOfFilters) {
  ConvGeometry g = kGeometries[0];
  EXPECT_TRUE(is_narrow_forward<float>(g));
  g.in_channels = 5;
  EXPECT_FALSE(is_narrow_forward<float>(g));  // it is not at every pixel
  g = kAtEveryPixel[0];
  g.in_channels = 2048;
  EXPECT_FALSE(is_narrow_forward<float>(g) || is_narrow_filter_gradient<float>(g));
  g = kGeometries[0];
  g.out_channels = 65;
  EXPECT_FALSE(is_narrow_forward<float>(g) || is_narrow_filter_gradient<float>(g));
  g = kGeometries[0];
  g.width.dilation = 2;
  EXPECT_FALSE(is_narrow_forward<float>(g) || is_narrow_filter_gradient<float>(g));
}

// Few output pixels may see far more zeros than any memory holds.
TEST(ConvNarrow, LeavesWidePaddingToTheGeneralFunctions) {
  constexpr int64_t kWide = int64_t{1} << 30;
  EXPECT_FALSE(is_narrow_forward<float>(
      {1, axis(8, 3, kWide / 4, kWide, kWide), axis(8, 3, kWide / 4, kWide, kWide), 3, 16}));
  EXPECT_FALSE(is_narrow_forward<float>({1, axis(8, 3, 1, 100, 100), axis(8, 3, 1, 0, 0), 3, 16}));
}

}  // namespace
}  // namespace millrace
