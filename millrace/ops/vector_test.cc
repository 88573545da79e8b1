#include "millrace/ops/vector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

namespace millrace {
namespace {

// The error of `got` in units of the last place of a float near `wanted`.
double ulps(float got, double wanted) {
  if (std::isnan(wanted)) return std::isnan(got) ? 0 : 1e9;
  const float rounded = static_cast<float>(wanted);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e9;
  if (rounded == 0 && got == 0) return std::signbit(got) == std::signbit(rounded) ? 0 : 1e9;
  int exponent;
  std::frexp(wanted, &exponent);
  return std::abs(got - wanted) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// Walks through all floats in steps of a prime, and checks that lanes and scalars agree.
template <class F, class Reference>
void expect_accurate(F f, Reference reference, double limit) {
  constexpr uint64_t kStep = 9973;
  constexpr int kLanes = vec::kLanes<float>;
  double worst = 0;
  float worst_at = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStep * kLanes) {
    float x[kLanes], y[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      x[i] = std::bit_cast<float>(static_cast<uint32_t>(bits + static_cast<uint64_t>(i) * kStep));
    }
    vec::store(y, f(vec::load(x)));
    for (int i = 0; i < kLanes; ++i) {
      const float scalar = f(x[i]);
      if (!std::isnan(scalar)) {
        ASSERT_EQ(std::bit_cast<uint32_t>(scalar), std::bit_cast<uint32_t>(y[i])) << "at " << x[i];
      }
      const double error = ulps(y[i], reference(static_cast<double>(x[i])));
      if (error > worst) worst = error, worst_at = x[i];
    }
  }
  EXPECT_LE(worst, limit) << "at " << worst_at;
}

#define EXPECT_ACCURATE(name, reference, limit) \
  expect_accurate([](auto x) { return vec::name(x); }, [](double x) { return reference(x); }, limit)

double sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

TEST(Vector, ErrorsAreAsDocumented) {
  EXPECT_ACCURATE(exp, std::exp, 1);
  EXPECT_ACCURATE(expm1, std::expm1, 2);
  EXPECT_ACCURATE(log, std::log, 1);
  EXPECT_ACCURATE(log1p, std::log1p, 2);
  EXPECT_ACCURATE(sigmoid, sigmoid, 3);
  EXPECT_ACCURATE(tanh, std::tanh, 3);
  EXPECT_ACCURATE(erf, std::erf, 2);
  EXPECT_ACCURATE(erfc, std::erfc, 0.6);
}

TEST(Vector, ErrorsOfTrigonometricFunctionsAreAsDocumented) {
  EXPECT_ACCURATE(sin, std::sin, 0.51);
  EXPECT_ACCURATE(cos, std::cos, 0.51);
  EXPECT_ACCURATE(tan, std::tan, 0.51);
  EXPECT_ACCURATE(asin, std::asin, 0.51);
  EXPECT_ACCURATE(acos, std::acos, 0.51);
  EXPECT_ACCURATE(atan, std::atan, 0.51);
}

// A pair of bit patterns, of numbers near one with a large exponent, or of moderate numbers.
std::pair<float, float> random_pair(std::mt19937& random, int kind) {
  const auto bits = [&] { return std::bit_cast<float>(static_cast<uint32_t>(random())); };
  std::uniform_real_distribution<float> unit(-1, 1);
  if (kind == 0) return {bits(), bits()};
  if (kind == 1) return {1 + unit(random) / 100, unit(random) * 10000};
  return {std::ldexp(1 + unit(random), static_cast<int>(unit(random) * 30)), unit(random) * 20};
}

bool same_float(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Every lane and the scalar function.
template <class F>
float in_lanes(F f, float x, float y) {
  vec::Vec<float> a, b;
  for (int i = 0; i < vec::kLanes<float>; ++i) a[i] = i == 0 ? 1.5F : x, b[i] = i == 0 ? 0.5F : y;
  const vec::Vec<float> z = f(a, b);
  EXPECT_TRUE(same_float(z[1], f(x, y))) << x << ", " << y;
  EXPECT_TRUE(same_float(z[0], f(1.5F, 0.5F))) << x << ", " << y;
  return z[1];
}
float pow_in_lanes(float x, float y) {
  return in_lanes([](auto a, auto b) { return vec::pow(a, b); }, x, y);
}
float fmod_in_lanes(float x, float y) {
  return in_lanes([](auto a, auto b) { return vec::fmod(a, b); }, x, y);
}

TEST(Vector, PowAndFmodOfRandomPairs) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 600000; ++i) {
    const auto [x, y] = random_pair(random, i % 3);
    const double wanted = std::pow(static_cast<double>(x), static_cast<double>(y));
    ASSERT_LE(ulps(pow_in_lanes(x, y), wanted), 0.51) << x << ", " << y << " seed " << kSeed;
    ASSERT_TRUE(same_float(fmod_in_lanes(x, y), std::fmod(x, y)))
        << x << ", " << y << " seed " << kSeed;
    // At and next to multiples.
    const float multiple = y * static_cast<float>(static_cast<uint16_t>(random()));
    ASSERT_TRUE(same_float(fmod_in_lanes(multiple, y), std::fmod(multiple, y)))
        << multiple << ", " << y << " seed " << kSeed;
  }
}

TEST(Vector, PowAndFmodOfSpecialValues) {
  const float kSpecial[] = {0,      -0.0F,       1,           -1,      2,      -2,    3,
                            -3,     0.5F,        -0.5F,       -2.5F,   127,    128,   -149,
                            -150,   INFINITY,    -INFINITY,   NAN,     1e-40F, 1e38F, -1e38F,
                            1e-45F, 16777215.0F, 16777217.0F, -1e-40F, 1e20F,  -1e20F};
  for (float x : kSpecial) {
    for (float y : kSpecial) {
      const double wanted = std::pow(static_cast<double>(x), static_cast<double>(y));
      const float got = pow_in_lanes(x, y);
      EXPECT_LE(ulps(got, wanted), 0.51) << x << ", " << y;
      EXPECT_TRUE(std::isnan(got) || std::signbit(got) == std::signbit(wanted)) << x << ", " << y;
      EXPECT_TRUE(same_float(fmod_in_lanes(x, y), std::fmod(x, y))) << x << ", " << y;
    }
  }
}

// A checksum of the results' bits, with one NaN for all.
template <class F>
uint32_t checksum(F f) {
  uint32_t sum = 0;
  const auto take = [&](float y) {
    const uint32_t bits = std::isnan(y) ? 0x7fc00000 : std::bit_cast<uint32_t>(y);
    sum = (std::rotl(sum, 5) ^ bits) * 0x9e3779b1;
  };
  constexpr int kLanes = vec::kLanes<float>;
  std::mt19937 random(3);
  for (int i = 0; i < 1 << 17; i += kLanes) {
    float x[kLanes];
    for (float& lane : x) lane = std::bit_cast<float>(static_cast<uint32_t>(random()));
    vec::store(x, f(vec::load(x)));
    for (float y : x) take(y);
  }
  return sum;
}
#define EXPECT_CHECKSUM(name, wanted) \
  EXPECT_EQ(checksum([](auto x) { return vec::name(x); }), wanted) << #name

// Written down once, on x86-64.
TEST(Vector, BitsAreThoseOfEveryArchitecture) {
  EXPECT_CHECKSUM(exp, 0xcaab8d96U);
  EXPECT_CHECKSUM(expm1, 0x85c2d149U);
  EXPECT_CHECKSUM(log, 0x5e5b6075U);
  EXPECT_CHECKSUM(log1p, 0xcc52a14bU);
  EXPECT_CHECKSUM(sigmoid, 0x47b84841U);
  EXPECT_CHECKSUM(tanh, 0x0c939377U);
  EXPECT_CHECKSUM(erf, 0x36316fd9U);
  EXPECT_CHECKSUM(erfc, 0xf374362dU);
  EXPECT_CHECKSUM(sin, 0x5f658426U);
  EXPECT_CHECKSUM(cos, 0x7f7aaf82U);
  EXPECT_CHECKSUM(tan, 0xe66bc676U);
  EXPECT_CHECKSUM(asin, 0x35d92338U);
  EXPECT_CHECKSUM(acos, 0x71846d84U);
  EXPECT_CHECKSUM(atan, 0x1e88ea01U);
  EXPECT_CHECKSUM(sqrt, 0xbd414886U);
  EXPECT_EQ(checksum([](auto x) { return vec::pow(vec::abs(x), x * 1e-3F); }), 0x5f0eee1eU);
}

TEST(Vector, RoundingIsExact) {
  EXPECT_ACCURATE(ceil, std::ceil, 0);
  EXPECT_ACCURATE(floor, std::floor, 0);
  EXPECT_ACCURATE(rint, std::rint, 0);
  EXPECT_ACCURATE(trunc, std::trunc, 0);
  EXPECT_ACCURATE(sqrt, std::sqrt, 0.5);
}

TEST(Vector, EndsOfTheRange) {
  const float inf = INFINITY;
  EXPECT_EQ(vec::exp(inf), inf);
  EXPECT_EQ(vec::exp(-inf), 0);
  EXPECT_EQ(vec::exp(-103.5F), std::exp(-103.5F));  // subnormal
  EXPECT_EQ(vec::exp(88.8F), inf);
  EXPECT_TRUE(std::isnan(vec::exp(NAN)));
  EXPECT_EQ(vec::log(0.0F), -inf);
  EXPECT_EQ(vec::log(inf), inf);
  EXPECT_TRUE(std::isnan(vec::log(-1.0F)));
  EXPECT_EQ(vec::log1p(-1.0F), -inf);
  EXPECT_EQ(vec::log1p(inf), inf);
  EXPECT_TRUE(std::signbit(vec::log1p(-0.0F)));
  EXPECT_TRUE(std::signbit(vec::tanh(-0.0F)));
  EXPECT_EQ(vec::tanh(-inf), -1);
  EXPECT_EQ(vec::sigmoid(-inf), 0);
  EXPECT_GT(vec::sigmoid(-95.0F), 0);  // subnormal
  EXPECT_EQ(vec::erf(inf), 1);
  EXPECT_EQ(vec::erf(-inf), -1);
  EXPECT_TRUE(std::isnan(vec::erf(NAN)));
  EXPECT_TRUE(std::signbit(vec::erf(-0.0F)));
  EXPECT_EQ(vec::erfc(-inf), 2);
  EXPECT_EQ(vec::erfc(inf), 0);
  EXPECT_EQ(vec::erfc(10.0F), static_cast<float>(std::erfc(10.0)));  // subnormal
  EXPECT_TRUE(std::signbit(vec::sin(-0.0F)));
  EXPECT_TRUE(std::isnan(vec::sin(inf)));
  EXPECT_TRUE(std::isnan(vec::cos(-inf)));
  EXPECT_TRUE(std::isnan(vec::tan(NAN)));
  EXPECT_TRUE(std::isnan(vec::asin(1.5F)));
  EXPECT_TRUE(std::isnan(vec::acos(-1.5F)));
  EXPECT_EQ(vec::acos(1.0F), 0);
  EXPECT_EQ(vec::atan(inf), static_cast<float>(std::atan(INFINITY)));
  EXPECT_TRUE(std::signbit(vec::atan(-0.0F)));
}

TEST(Vector, MaxAndMinKeepNan) {
  EXPECT_TRUE(std::isnan(vec::max(NAN, 1.0F)));
  EXPECT_TRUE(std::isnan(vec::max(1.0F, NAN)));
  EXPECT_TRUE(std::isnan(vec::min(NAN, 1.0F)));
  EXPECT_EQ(vec::max(1.0F, 2.0F), 2);
  EXPECT_EQ(vec::min(1.0F, 2.0F), 1);
}

TEST(Vector, IntegersWrap) {
  EXPECT_EQ(vec::add(INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(vec::mul(int16_t{-32768}, int16_t{-1}), -32768);
  EXPECT_EQ(vec::mul(uint16_t{65535}, uint16_t{65535}), 1);
  EXPECT_EQ(vec::neg(INT64_MIN), INT64_MIN);
  EXPECT_EQ(vec::abs(INT32_MIN), INT32_MIN);
  const vec::Vec<int32_t> v = vec::add(vec::broadcast(INT32_MAX), vec::broadcast(1));
  EXPECT_EQ(v[vec::kLanes<int32_t> - 1], INT32_MIN);
}

TEST(Vector, EveryLaneHasTheSignOfZero) {
  const vec::Vec<float> v = vec::broadcast(-0.0F);
  for (int i = 0; i < vec::kLanes<float>; ++i) EXPECT_TRUE(std::signbit(v[i]));
  EXPECT_FALSE(std::signbit(vec::broadcast(0.0F)[0]));
}

TEST(Vector, FoldVisitsEveryLane) {
  vec::Vec<int32_t> v;
  int32_t sum = 0;
  for (int i = 0; i < vec::kLanes<int32_t>; ++i) sum += v[i] = i * i + 1;
  EXPECT_EQ(vec::fold<int32_t>(v, [](int32_t a, int32_t b) { return a + b; }), sum);
}

}  // namespace
}  // namespace millrace
