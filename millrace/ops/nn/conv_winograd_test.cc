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

AxisGeometry axis(int64_t input, int64_t before, int64_t after) {
  return {.input = input, .window = 3, .before = before, .output = input + before + after - 2};
}

// Tiles that fit and that do not; more padding than a window has on one side and none on another;
// one pixel; few and many channels and filters; filters that are kept and that are not; more blocks
// of tiles than are transformed at once.
const ConvGeometry kGeometries[] = {
    {1, axis(8, 1, 1), axis(12, 1, 1), 16, 16},  {3, axis(7, 1, 1), axis(13, 0, 0), 5, 23},
    {2, axis(6, 5, 0), axis(9, 1, 4), 33, 64},   {1, axis(3, 0, 0), axis(3, 0, 0), 130, 3},
    {1, axis(1, 1, 1), axis(1, 2, 2), 1, 1},     {2, axis(14, 1, 1), axis(14, 1, 1), 300, 70},
    {2, axis(60, 1, 1), axis(52, 1, 1), 40, 70}, {1, axis(100, 1, 1), axis(90, 1, 1), 160, 20},
};

struct Images {
  std::vector<float> image, filter, dy;
};

int64_t image_size(const ConvGeometry& g) {
  return g.batch * g.height.input * g.width.input * g.in_channels;
}
int64_t filter_size(const ConvGeometry& g) { return 9 * g.in_channels * g.out_channels; }
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
          const int64_t tap = ((fy * 3 + fx) * g.in_channels + c) * g.out_channels;
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
  Exact (*exact)(const ConvGeometry& g, const Images& images);
  Status (*plain)(const ConvGeometry& g, const Images& images, float* out,
                  ParallelFor parallel_for);
  Status (*close)(const ConvGeometry& g, const Images& images, float* out,
                  ParallelFor parallel_for);
};

constexpr ProductOf kProducts[] = {
    {"forward",
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
    {"input gradient",
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
    {"filter gradient",
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
TEST(ConvWinograd, ErrsAboutTwiceAsMuchAsThePlainProducts) {
  std::mt19937 random(9);
  for (const int64_t channels : {32, 64, 192}) {
    const ConvGeometry g{1, axis(24, 1, 1), axis(24, 1, 1), channels, channels};
    const Images images = numbers(g, random);
    for (const ProductOf& product : kProducts) {
      const Exact exact = product.exact(g, images);
      std::vector<float> out(exact.value.size());
      ASSERT_TRUE(product.plain(g, images, out.data(), run_serially).ok());
      const Errors plain = errors(out, exact);
      ASSERT_TRUE(product.close(g, images, out.data(), run_serially).ok());
      const Errors close = errors(out, exact);
      SCOPED_TRACE(testing::Message() << product.name << ", " << channels << " channels: mean "
                                      << close.mean << ", largest " << close.largest << "; plain "
                                      << plain.mean << ", " << plain.largest);
      EXPECT_LT(close.mean, 6e-8);
      EXPECT_LT(close.largest, 8e-7);
      EXPECT_LT(close.mean, 4 * plain.mean);
    }
  }
}

TEST(ConvWinograd, ThreadsDoNotChangeBits) {
  std::mt19937 random(5);
  ThreadPool pool(4);
  const auto on_pool = [&](int64_t units, double cost, FunctionRef<void(int64_t, int64_t)> body) {
    pool.parallel_for(units, cost, body);
  };
  for (const ConvGeometry& g : {kGeometries[5], kGeometries[6]}) {
    const Images images = numbers(g, random);
    for (const ProductOf& product : kProducts) {
      SCOPED_TRACE(product.name);
      std::vector<float> one(product.exact(g, images).value.size()), four(one.size());
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

TEST(ConvWinograd, IsForThreeByThreeAtEveryPixel) {
  const ConvGeometry g{8, axis(28, 1, 1), axis(28, 1, 1), 128, 128};
  EXPECT_TRUE(winograd_pays_forward(g));
  EXPECT_TRUE(winograd_pays_backward_input(g));
  EXPECT_TRUE(winograd_pays_backward_filter(g));
  ConvGeometry other = g;
  other.width.window = 5;
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
  other.batch = 2;
  EXPECT_FALSE(winograd_pays_forward(other));
}

// Image and filter of one channel, transformed, multiplied and transformed back, in the copies for
// every instruction set.
TEST(WinogradLoops, CorrelateATileInEveryInstructionSet) {
  constexpr int64_t kChannels = 37;  // vectors and single ones
  constexpr int64_t kStep = 64;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> d(36 * kChannels), w(9 * kChannels), y(16 * kChannels);
  for (float& x : d) x = normal(random);
  for (float& x : w) x = normal(random);
  const float* seen[36];
  float* written[16];
  for (int64_t e = 0; e < 36; ++e) seen[e] = d.data() + e * kChannels;
  for (int64_t e = 0; e < 16; ++e) written[e] = y.data() + e * kChannels;
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    SCOPED_TRACE(isa_name(isa));
    const WinogradLoops& loops = isa_table<WinogradLoops>(isa);
    std::vector<float> v(36 * kStep, NAN), u(36 * kStep, NAN);
    loops.image(seen, kChannels, v.data(), kStep);
    loops.filter(w.data(), kChannels, kChannels, u.data(), kStep);
    for (int64_t e = 0; e < 36; ++e) {
      const int lanes = isa_table<GemmKernels<float>>(isa).lanes;
      for (int64_t c = kChannels; c % lanes != 0; ++c) {
        EXPECT_EQ(u[static_cast<size_t>(e * kStep + c)], 0);
      }
    }
    for (size_t i = 0; i < v.size(); ++i) v[i] *= u[i];
    loops.result(v.data(), kStep, kChannels, written);
    for (int64_t c = 0; c < kChannels; ++c) {
      for (int64_t e = 0; e < 16; ++e) {
        double want = 0;
        for (int64_t t = 0; t < 9; ++t) {
          want += double{seen[(e / 4 + t / 3) * 6 + e % 4 + t % 3][c]} *
                  double{w[static_cast<size_t>(t * kChannels + c)]};
        }
        EXPECT_NEAR(written[e][c], want, 2e-5) << "channel " << c << ", element " << e;
      }
    }
  }
}

// The gradient of a filter of one channel, the same way.
TEST(WinogradLoops, SumAFiltersGradientInEveryInstructionSet) {
  constexpr int64_t kFilters = 37;
  constexpr int64_t kStep = 64;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> d(36 * kFilters), g(16 * kFilters);
  for (float& x : d) x = normal(random);
  for (float& x : g) x = normal(random);
  const float *seen[36], *weights[16];
  for (int64_t e = 0; e < 36; ++e) seen[e] = d.data() + e * kFilters;
  for (int64_t e = 0; e < 16; ++e) weights[e] = g.data() + e * kFilters;
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    SCOPED_TRACE(isa_name(isa));
    const WinogradLoops& loops = isa_table<WinogradLoops>(isa);
    std::vector<float> v(36 * kStep, NAN), u(36 * kStep, NAN), w(9 * kFilters, NAN);
    loops.image(seen, kFilters, v.data(), kStep);
    loops.gradient(weights, kFilters, u.data(), kStep);
    for (size_t i = 0; i < v.size(); ++i) v[i] *= u[i];
    loops.filter_gradient(v.data(), kStep, kFilters, /*accumulate=*/false, w.data(), kFilters);
    loops.filter_gradient(v.data(), kStep, kFilters, /*accumulate=*/true, w.data(), kFilters);
    for (int64_t n = 0; n < kFilters; ++n) {
      for (int64_t t = 0; t < 9; ++t) {
        double want = 0;
        for (int64_t e = 0; e < 16; ++e) {
          want += 2 * double{seen[(e / 4 + t / 3) * 6 + e % 4 + t % 3][n]} * double{weights[e][n]};
        }
        EXPECT_NEAR(w[static_cast<size_t>(t * kFilters + n)], want, 4e-5)
            << "filter " << n << ", element " << t;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
