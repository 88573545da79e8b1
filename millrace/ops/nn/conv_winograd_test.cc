// test-labels: threads
#include "millrace/ops/nn/conv_winograd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "millrace/base/thread_pool.h"
#include "millrace/ops/nn/winograd_gemm.h"

namespace millrace {
namespace {

AxisGeometry axis(int64_t input, int64_t before, int64_t after, int64_t window = 3) {
  return {.input = input,
          .window = window,
          .before = before,
          .output = input + before + after - window + 1};
}

// Tiles that fit and that do not; more padding than a window has on one side and none on another;
// one pixel; few and many channels and filters; filters that are kept and that are not; more blocks
// of tiles than are transformed at once, of images and of gradients; sums for gradients of filters
// that are kept and that are not; windows of both sizes.
const ConvGeometry kGeometries[] = {
    {1, axis(8, 1, 1), axis(12, 1, 1), 16, 16},
    {3, axis(7, 1, 1), axis(13, 0, 0), 5, 23},
    {2, axis(6, 5, 0), axis(9, 1, 4), 33, 64},
    {1, axis(3, 0, 0), axis(3, 0, 0), 130, 3},
    {1, axis(1, 1, 1), axis(1, 2, 2), 1, 1},
    {2, axis(14, 1, 1), axis(14, 1, 1), 300, 70},
    {2, axis(60, 1, 1), axis(52, 1, 1), 40, 70},
    {1, axis(70, 1, 1), axis(60, 1, 1), 300, 18},
    {2, axis(9, 2, 2, 5), axis(10, 2, 2, 5), 20, 35},
    {1, axis(5, 0, 0, 5), axis(8, 7, 1, 5), 50, 16},
    {3, axis(27, 2, 2, 5), axis(24, 0, 0, 5), 32, 48},
    {4, axis(14, 2, 2, 5), axis(14, 2, 2, 5), 24, 28},
    {1, axis(12, 1, 1), axis(12, 1, 1), 250, 500},
};

struct Images {
  std::vector<float> image, filter, dy;
};

int64_t image_size(const ConvGeometry& g) {
  return g.batch * g.height.input * g.width.input * g.in_channels;
}
int64_t filter_size(const ConvGeometry& g) {
  return g.height.window * g.width.window * g.in_channels * g.out_channels;
}
int64_t result_size(const ConvGeometry& g) {
  return g.batch * g.height.output * g.width.output * g.out_channels;
}

Images numbers(const ConvGeometry& g, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Images out;
  for (const auto& [v, size] : {std::pair{&out.image, image_size(g)},
                                {&out.filter, filter_size(g)},
                                {&out.dy, result_size(g)}}) {
    for (int64_t i = 0; i < size; ++i) v->push_back(normal(random));
  }
  return out;
}

// What an element should be, and the sum of the magnitudes of its products.
struct Exact {
  std::vector<double> value, magnitude;
  explicit Exact(int64_t size)
      : value(static_cast<size_t>(size)), magnitude(static_cast<size_t>(size)) {}
  void add(size_t i, double product) {
    value[i] += product;
    magnitude[i] += std::abs(product);
  }
};

// Calls body(element of the image, of the filter, of the output) for all products.
template <class F>
void for_all_products(const ConvGeometry& g, F body) {
  const AxisGeometry &h = g.height, &w = g.width;
  for (int64_t out = 0; out < g.batch * h.output * w.output; ++out) {
    const int64_t n = out / w.output / h.output, oy = out / w.output % h.output;
    const int64_t ox = out % w.output;
    for (int64_t fy = h.first(oy); fy < h.last(oy); ++fy) {
      for (int64_t fx = w.first(ox); fx < w.last(ox); ++fx) {
        const int64_t y = h.origin(oy) + fy, x = w.origin(ox) + fx;
        const int64_t pixel = ((n * h.input + y) * w.input + x) * g.in_channels;
        for (int64_t c = 0; c < g.in_channels; ++c) {
          const int64_t tap = ((fy * w.window + fx) * g.in_channels + c) * g.out_channels;
          for (int64_t f = 0; f < g.out_channels; ++f) {
            body(static_cast<size_t>(pixel + c), static_cast<size_t>(tap + f),
                 static_cast<size_t>(out * g.out_channels + f));
          }
        }
      }
    }
  }
}

// One of the three products: what it should be, and the two functions that compute it.
struct ProductOf {
  const char* name;
  int64_t (*size)(const ConvGeometry& g);
  Exact (*exact)(const ConvGeometry& g, const Images& images);
  Status (*plain)(const ConvGeometry& g, const Images& images, float* out,
                  ParallelFor parallel_for);
  Status (*close)(const ConvGeometry& g, const Images& images, float* out,
                  ParallelFor parallel_for);
};

constexpr ProductOf kProducts[] = {
    {"forward", &result_size,
     [](const ConvGeometry& g, const Images& images) {
       Exact out(result_size(g));
       for_all_products(g, [&](size_t i, size_t w, size_t o) {
         out.add(o, double{images.image[i]} * double{images.filter[w]});
       });
       return out;
     },
     [](const ConvGeometry& g, const Images& images, float* out, ParallelFor parallel_for) {
       return conv_forward(g, images.image.data(), images.filter.data(), out, parallel_for);
     },
     [](const ConvGeometry& g, const Images& images, float* out, ParallelFor parallel_for) {
       return conv_forward_winograd(g, images.image.data(), images.filter.data(), out,
                                    parallel_for);
     }},
    {"input gradient", &image_size,
     [](const ConvGeometry& g, const Images& images) {
       Exact out(image_size(g));
       for_all_products(g, [&](size_t i, size_t w, size_t o) {
         out.add(i, double{images.dy[o]} * double{images.filter[w]});
       });
       return out;
     },
     [](const ConvGeometry& g, const Images& images, float* out, ParallelFor parallel_for) {
       return conv_backward_input(g, images.filter.data(), images.dy.data(), out, parallel_for);
     },
     [](const ConvGeometry& g, const Images& images, float* out, ParallelFor parallel_for) {
       return conv_backward_input_winograd(g, images.filter.data(), images.dy.data(), out,
                                           parallel_for);
     }},
    {"filter gradient", &filter_size,
     [](const ConvGeometry& g, const Images& images) {
       Exact out(filter_size(g));
       for_all_products(g, [&](size_t i, size_t w, size_t o) {
         out.add(w, double{images.dy[o]} * double{images.image[i]});
       });
       return out;
     },
     [](const ConvGeometry& g, const Images& images, float* out, ParallelFor parallel_for) {
       return conv_backward_filter(g, images.image.data(), images.dy.data(), out, parallel_for);
     },
     [](const ConvGeometry& g, const Images& images, float* out, ParallelFor parallel_for) {
       return conv_backward_filter_winograd(g, images.image.data(), images.dy.data(), out,
                                            parallel_for);
     }},
};

// Errors as shares of the sums of magnitudes. An error is as large as what its tile makes it, so
// the largest is one of the mean sum.
struct Errors {
  double mean, largest;
};
Errors errors(const std::vector<float>& got, const Exact& want) {
  double sum = 0, largest = 0, magnitude = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(double{got[i]} - want.value[i]);
    if (!(error <= largest)) largest = error;
    sum += error;
    magnitude += want.magnitude[i];
  }
  return {sum / magnitude, largest / magnitude * static_cast<double>(got.size())};
}

TEST(ConvWinograd, ComesCloseToTheDefinition) {
  std::mt19937 random(7);
  for (const ConvGeometry& g : kGeometries) {
    ASSERT_TRUE(fits_winograd(g));
    const Images images = numbers(g, random);
    for (const ProductOf& product : kProducts) {
      SCOPED_TRACE(testing::Message() << product.name << ", geometry " << &g - kGeometries);
      const Exact exact = product.exact(g, images);
      std::vector<float> out(exact.value.size(), 9);
      ASSERT_TRUE(product.close(g, images, out.data(), run_serially).ok());
      // Where a tile holds little but zeros its elements still err as much as whole ones.
      EXPECT_LT(errors(out, exact).largest, 1e-5);
    }
  }
}

// The tolerance that docs/optimisation.md tells.
TEST(ConvWinograd, ErrsAFewTimesAsMuchAsThePlainProducts) {
  std::mt19937 random(9);
  for (const auto& [window, channels] :
       {std::pair<int64_t, int64_t>{3, 32}, {3, 64}, {3, 192}, {5, 32}, {5, 96}}) {
    const int64_t pad = window / 2;
    const AxisGeometry side = axis(24, pad, pad, window);
    const ConvGeometry g{1, side, side, channels, channels};
    const Images images = numbers(g, random);
    for (const ProductOf& product : kProducts) {
      const Exact exact = product.exact(g, images);
      std::vector<float> out(exact.value.size());
      ASSERT_TRUE(product.plain(g, images, out.data(), run_serially).ok());
      const Errors plain = errors(out, exact);
      ASSERT_TRUE(product.close(g, images, out.data(), run_serially).ok());
      const Errors close = errors(out, exact);
      SCOPED_TRACE(testing::Message()
                   << product.name << ", windows of " << window << ", " << channels
                   << " channels: mean " << close.mean << ", largest " << close.largest
                   << "; plain " << plain.mean << ", " << plain.largest);
      EXPECT_LT(close.mean, 7e-8);
      EXPECT_LT(close.largest, 1.2e-6);
      EXPECT_LT(close.mean, 5 * plain.mean);
    }
  }
}

TEST(ConvWinograd, ThreadsDoNotChangeBits) {
  std::mt19937 random(5);
  ThreadPool pool(4);
  const auto on_pool = [&](int64_t units, double cost, FunctionRef<void(int64_t, int64_t)> body) {
    pool.parallel_for(units, cost, body);
  };
  for (const ConvGeometry& g : {kGeometries[5], kGeometries[6], kGeometries[10], kGeometries[11]}) {
    const Images images = numbers(g, random);
    for (const ProductOf& product : kProducts) {
      SCOPED_TRACE(product.name);
      std::vector<float> one(static_cast<size_t>(product.size(g))), four(one.size());
      ASSERT_TRUE(product.close(g, images, one.data(), run_serially).ok());
      ASSERT_TRUE(product.close(g, images, four.data(), on_pool).ok());
      EXPECT_EQ(std::memcmp(one.data(), four.data(), one.size() * sizeof(float)), 0);
    }
  }
}

// An infinity stays within the tiles that see it, and there everything is as wrong as it can be.
TEST(ConvWinograd, WhatIsNotFiniteReachesItsTiles) {
  std::mt19937 random(6);
  const ConvGeometry g{1, axis(16, 1, 1), axis(16, 1, 1), 16, 16};
  Images images = numbers(g, random);
  std::vector<float> before(images.dy.size()), after(images.dy.size());
  const auto run = [&](std::vector<float>& out) {
    return conv_forward_winograd(g, images.image.data(), images.filter.data(), out.data(),
                                 run_serially)
        .ok();
  };
  ASSERT_TRUE(run(before));
  images.image[static_cast<size_t>((5 * 16 + 6) * 16)] =
      HUGE_VALF;  // only the tile at (4, 4) sees it
  ASSERT_TRUE(run(after));
  for (int64_t i = 0; i < result_size(g); ++i) {
    const int64_t y = i / 16 / 16, x = i / 16 % 16;
    const float now = after[static_cast<size_t>(i)];
    if (y / 4 == 1 && x / 4 == 1) {
      EXPECT_FALSE(std::isfinite(now)) << y << ' ' << x;
    } else {
      EXPECT_EQ(now, before[static_cast<size_t>(i)]) << y << ' ' << x;
    }
  }
}

TEST(ConvWinograd, IsForSmallSquareWindowsAtEveryPixel) {
  const ConvGeometry g{8, axis(28, 1, 1), axis(28, 1, 1), 128, 128};
  EXPECT_TRUE(winograd_pays_forward(g));
  EXPECT_TRUE(winograd_pays_backward_input(g));
  EXPECT_TRUE(winograd_pays_backward_filter(g));
  ConvGeometry other = g;
  other.width.window = 5;
  EXPECT_FALSE(fits_winograd(other));
  other.height.window = 5;
  EXPECT_TRUE(winograd_pays_forward(other));
  other.height.window = other.width.window = 7;
  EXPECT_FALSE(fits_winograd(other));
  other = g;
  other.height.stride = 2;
  EXPECT_FALSE(winograd_pays_forward(other));
  other = g;
  other.width.dilation = 2;
  EXPECT_FALSE(winograd_pays_backward_input(other));
  other = g;
  other.in_channels = 3;
  EXPECT_TRUE(fits_winograd(other));
  EXPECT_FALSE(winograd_pays_forward(other));
  EXPECT_FALSE(winograd_pays_backward_input(other));
  EXPECT_FALSE(winograd_pays_backward_filter(other));
  other = g;
  other.height = other.width = axis(5, 1, 1);  // four tiles of 16 pixels for 25
  EXPECT_FALSE(winograd_pays_forward(other));
  other = g;
  other.height = other.width = axis(8, 1, 1);
  EXPECT_TRUE(winograd_pays_forward(other));
  other.batch = 5;
  EXPECT_TRUE(winograd_pays_backward_input(other));
  EXPECT_FALSE(winograd_pays_backward_filter(other));
  other.batch = 2;
  EXPECT_FALSE(winograd_pays_forward(other));
}

class WinogradTransforms : public testing::TestWithParam<int64_t> {
 protected:
  static constexpr int64_t kChannels = 37;  // vectors and single ones
  static constexpr int64_t kStep = 64;

  std::vector<float> numbers(int64_t elements) {
    std::vector<float> v;
    for (int64_t i = 0; i < elements * kChannels; ++i) v.push_back(normal_(random_));
    return v;
  }
  template <class T>
  static std::vector<T*> pointers(std::vector<float>& v) {
    std::vector<T*> out;
    for (size_t i = 0; i < v.size(); i += kChannels) out.push_back(v.data() + i);
    return out;
  }
  // Calls body(loops, lanes) for every instruction set.
  template <class F>
  void for_each_isa(F body) {
    for (const Isa isa : kIsas) {
      if (isa > machine_isa()) break;
      SCOPED_TRACE(isa_name(isa));
      const WinogradTable& table = isa_table<WinogradTable>(isa);
      const WinogradLoops& loops = window_ == 3 ? table.three : table.five;
      ASSERT_EQ(loops.window, window_);
      ASSERT_EQ(loops.tile, tile_);
      body(loops, isa_table<GemmKernels<float>>(isa).lanes);
    }
  }
  void expect_filled_up(const std::vector<float>& u, int lanes) {
    for (int64_t e = 0; e < 36; ++e) {
      for (int64_t c = kChannels; c % lanes != 0; ++c) {
        EXPECT_EQ(u[static_cast<size_t>(e * kStep + c)], 0);
      }
    }
  }
  // Element `at` of the square of `side`, moved by element `by` of the square of `other`, of 6x6.
  static size_t seen(int64_t at, int64_t side, int64_t by, int64_t other) {
    return static_cast<size_t>((at / side + by / other) * 6 + at % side + by % other);
  }

  const int64_t window_ = GetParam(), tile_ = 7 - window_;
  std::mt19937 random_{3};
  std::normal_distribution<float> normal_;
};

// Image and filter of one channel, transformed, multiplied and transformed back.
TEST_P(WinogradTransforms, CorrelateATile) {
  std::vector<float> d = numbers(36), w = numbers(window_ * window_), y = numbers(tile_ * tile_);
  const auto pixels = pointers<const float>(d);
  const auto written = pointers<float>(y);
  for_each_isa([&](const WinogradLoops& loops, int lanes) {
    std::vector<float> v(36 * kStep, NAN), u(36 * kStep, NAN);
    loops.image(pixels.data(), kChannels, v.data(), kStep);
    loops.filter(w.data(), kChannels, kChannels, u.data(), kStep);
    expect_filled_up(u, lanes);
    for (size_t i = 0; i < v.size(); ++i) v[i] *= u[i];
    loops.result(v.data(), kStep, kChannels, written.data());
    for (int64_t c = 0; c < kChannels; ++c) {
      for (int64_t e = 0; e < tile_ * tile_; ++e) {
        double want = 0;
        for (int64_t t = 0; t < window_ * window_; ++t) {
          want += double{pixels[seen(e, tile_, t, window_)][c]} *
                  double{w[static_cast<size_t>(t * kChannels + c)]};
        }
        EXPECT_NEAR(written[static_cast<size_t>(e)][c], want, 3e-5) << c << ", element " << e;
      }
    }
  });
}

// The gradient of a filter of one channel, the same way, twice.
TEST_P(WinogradTransforms, SumTheGradientOfAFilter) {
  std::vector<float> d = numbers(36), g = numbers(tile_ * tile_);
  const auto pixels = pointers<const float>(d), weights = pointers<const float>(g);
  for_each_isa([&](const WinogradLoops& loops, int lanes) {
    std::vector<float> v(36 * kStep, NAN), u(36 * kStep, NAN);
    std::vector<float> w = numbers(window_ * window_);
    loops.image(pixels.data(), kChannels, v.data(), kStep);
    loops.gradient(weights.data(), kChannels, u.data(), kStep);
    expect_filled_up(u, lanes);
    for (size_t i = 0; i < v.size(); ++i) v[i] *= u[i];
    loops.filter_gradient(v.data(), kStep, kChannels, /*accumulate=*/false, w.data(), kChannels);
    loops.filter_gradient(v.data(), kStep, kChannels, /*accumulate=*/true, w.data(), kChannels);
    for (int64_t n = 0; n < kChannels; ++n) {
      for (int64_t t = 0; t < window_ * window_; ++t) {
        double want = 0;
        for (int64_t e = 0; e < tile_ * tile_; ++e) {
          want += 2 * double{pixels[seen(e, tile_, t, window_)][n]} *
                  double{weights[static_cast<size_t>(e)][n]};
        }
        EXPECT_NEAR(w[static_cast<size_t>(t * kChannels + n)], want, 6e-5)
            << n << ", element " << t;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Windows, WinogradTransforms, testing::Values(3, 5));

}  // namespace
}  // namespace millrace
