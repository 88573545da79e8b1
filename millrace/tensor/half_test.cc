#include "millrace/tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "millrace/tensor/float8.h"
#include "millrace/tensor/quantized.h"

namespace millrace {
namespace {

template <class T>
class Float16Test : public testing::Test {};
using Float16Types = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(Float16Test, Float16Types);

TYPED_TEST(Float16Test, EveryPatternSurvivesFloat) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const TypeParam value = TypeParam::from_bits(static_cast<uint16_t>(bits));
    ASSERT_EQ(TypeParam(static_cast<float>(value)).bits, bits);
  }
}

// Rounding checked against the definition: the nearest of the two neighbours, the even one on a
// tie.
TYPED_TEST(Float16Test, RoundsToNearestEven) {
  const auto max_bits = std::numeric_limits<TypeParam>::max().bits;
  for (uint16_t bits = 0; bits < max_bits; ++bits) {
    const auto low = TypeParam::from_bits(bits);
    const auto high = TypeParam::from_bits(bits + 1);
    const float middle =
        static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    ASSERT_EQ(TypeParam(middle).bits, bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0f)).bits, bits) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, INFINITY)).bits, bits + 1) << bits;
    ASSERT_EQ(TypeParam(-middle).bits, TypeParam(middle).bits | 0x8000) << bits;
  }
}

TYPED_TEST(Float16Test, Specials) {
  using Limits = std::numeric_limits<TypeParam>;
  EXPECT_EQ(TypeParam(INFINITY).bits, Limits::infinity().bits);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, Limits::infinity().bits);
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(NAN))));
  // A NaN whose payload lies below the bits that are kept stays a NaN.
  const float low_nan = std::bit_cast<float>(uint32_t{0x7f800001});
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(low_nan))));
  EXPECT_FALSE(Limits::quiet_NaN() == Limits::quiet_NaN());
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(static_cast<float>(Limits::epsilon()), std::ldexp(1.0f, 1 - Limits::digits));
  EXPECT_EQ(static_cast<float>(Limits::min()), std::ldexp(1.0f, Limits::min_exponent - 1));
  EXPECT_EQ(Limits::lowest(), -Limits::max());
}

TEST(HalfTest, OverflowsAt65520) {
  EXPECT_EQ(Half(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Half(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00);
}

TYPED_TEST(Float16Test, Arithmetic) {
  const TypeParam two(2);
  const TypeParam three(3.0);
  EXPECT_EQ(two + three, TypeParam(5));
  EXPECT_EQ(two - three, -TypeParam(1));
  EXPECT_EQ(two * three, TypeParam(6));
  EXPECT_EQ(three / two, TypeParam(1.5f));
  EXPECT_LT(two, three);
  EXPECT_GE(three, three);
  TypeParam sum = two;
  sum += three;
  sum *= two;
  EXPECT_EQ(static_cast<float>(sum), 10.0f);
  EXPECT_EQ(two + 0.5f, 2.5f);
  EXPECT_EQ(str_cat(TypeParam(0.5)), "0.5");
}

template <class T>
class SmallFloatTest : public testing::Test {};
using SmallFloatTypes = testing::Types<Float8E5M2, Float8E4M3FN, Float8E4M3FNUZ, Float8E4M3B11FNUZ,
                                       Float8E5M2FNUZ, Float4E2M1FN>;
TYPED_TEST_SUITE(SmallFloatTest, SmallFloatTypes);

TYPED_TEST(SmallFloatTest, EveryNumberSurvivesFloat) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto value = TypeParam::from_bits(static_cast<uint8_t>(bits));
    const auto real = static_cast<float>(value);
    const TypeParam again(real);
    if (std::isnan(real)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(again))) << bits;
    } else {
      ASSERT_EQ(again.bits, value.bits) << bits;
    }
  }
}

// The nearest value, found by trying all.
TYPED_TEST(SmallFloatTest, RoundsToNearest) {
  const uint32_t seed = 17;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-6, 6);
  for (int i = 0; i < 2000; ++i) {
    const float x = std::ldexp(distribution(random), static_cast<int>(random() % 8) - 7);
    float best = INFINITY;
    for (int bits = 0; bits < 256; ++bits) {
      const auto candidate = static_cast<float>(TypeParam::from_bits(static_cast<uint8_t>(bits)));
      if (std::fabs(candidate - x) < best) best = std::fabs(candidate - x);
    }
    ASSERT_EQ(std::fabs(static_cast<float>(TypeParam(x)) - x), best) << x;
  }
}

TEST(SmallFloatLimitsTest, LargestNumbersAndOverflow) {
  EXPECT_EQ(static_cast<float>(Float8E5M2::from_bits(0x7b)), 57344.0f);
  EXPECT_EQ(static_cast<float>(Float8E5M2(1e9f)), INFINITY);
  EXPECT_EQ(static_cast<float>(Float8E4M3FN::from_bits(0x7e)), 448.0f);
  EXPECT_EQ(Float8E4M3FN(464.0f).bits, 0x7e);  // a tie, to even
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8E4M3FN(465.0f))));
  EXPECT_EQ(static_cast<float>(Float8E4M3FNUZ::from_bits(0x7f)), 240.0f);
  EXPECT_EQ(static_cast<float>(Float8E4M3B11FNUZ::from_bits(0x7f)), 30.0f);
  EXPECT_EQ(static_cast<float>(Float8E5M2FNUZ::from_bits(0x7f)), 57344.0f);
  EXPECT_EQ(Float8E5M2FNUZ(-0.0f).bits, 0);
  EXPECT_EQ(Float8E5M2FNUZ(-1e-30f).bits, 0);
  EXPECT_EQ(Float8E4M3FNUZ(-INFINITY).bits, 0x80);
  EXPECT_EQ(static_cast<float>(Float4E2M1FN(100.0f)), 6.0f);
  EXPECT_EQ(static_cast<float>(Float4E2M1FN(-INFINITY)), -6.0f);
  EXPECT_EQ(static_cast<float>(Float4E2M1FN(2.5f)), 2.0f);
}

TEST(NarrowIntTest, Wraps) {
  EXPECT_EQ(static_cast<int>(Int4(7)), 7);
  EXPECT_EQ(static_cast<int>(Int4(8)), -8);
  EXPECT_EQ(static_cast<int>(Int4(-9)), 7);
  EXPECT_EQ(static_cast<int>(UInt4(-1)), 15);
  EXPECT_EQ(static_cast<int>(Int2(2)), -2);
  EXPECT_EQ(static_cast<int>(UInt2(5)), 1);
}

}  // namespace
}  // namespace millrace
