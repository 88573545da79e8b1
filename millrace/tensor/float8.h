#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "millrace/base/str_cat.h"
#include "millrace/tensor/dtype.h"

// Floating types of eight and four bits. Storage only: they convert to and from float and do no
// arithmetic. Conversion to float is exact; from float it rounds to nearest, ties to even.

namespace millrace {

// Which bit patterns of a small float are not finite numbers.
enum class SmallFloatSpecials : uint8_t {
  kIeee,          // the largest exponent holds infinities and NaNs; overflow becomes infinity
  kNanAllOnes,    // only all-ones is NaN, no infinity; overflow becomes NaN
  kNanMinusZero,  // only the pattern of -0 is NaN, no infinity, no -0; overflow becomes NaN
  kNone,          // every pattern is a number; overflow becomes the largest, NaN becomes -0
};

template <int ExponentBits, int MantissaBits, int Bias, SmallFloatSpecials Specials>
struct SmallFloat {
  uint8_t bits = 0;

  constexpr SmallFloat() = default;
  explicit SmallFloat(float value) : bits(encode(value)) {}
  static constexpr SmallFloat from_bits(uint8_t bits) {
    SmallFloat result;
    result.bits = bits & (kSign | kMagnitude);
    return result;
  }
  explicit operator float() const { return decode(bits); }
  friend bool operator==(SmallFloat a, SmallFloat b) { return float(a) == float(b); }
  friend void append_to(std::string& out, SmallFloat v) { append_to(out, float(v)); }

 private:
  static constexpr uint8_t kSign = 1 << (ExponentBits + MantissaBits);
  static constexpr uint8_t kMagnitude = kSign - 1;
  static constexpr uint8_t kInfinity = ((1 << ExponentBits) - 1) << MantissaBits;
  // The pattern of the largest finite number.
  static constexpr uint8_t kMax = Specials == SmallFloatSpecials::kIeee         ? kInfinity - 1
                                  : Specials == SmallFloatSpecials::kNanAllOnes ? kMagnitude - 1
                                                                                : kMagnitude;

  static constexpr uint8_t nan(uint8_t sign) {
    switch (Specials) {
      case SmallFloatSpecials::kIeee:
        return sign | kInfinity | (1 << (MantissaBits - 1));
      case SmallFloatSpecials::kNanAllOnes:
        return sign | kMagnitude;
      default:
        return kSign;
    }
  }

  static float decode(uint8_t bits) {
    const uint8_t magnitude = bits & kMagnitude;
    const bool negative = (bits & kSign) != 0;
    if constexpr (Specials == SmallFloatSpecials::kNanMinusZero) {
      if (bits == kSign) return std::numeric_limits<float>::quiet_NaN();
    } else if constexpr (Specials != SmallFloatSpecials::kNone) {
      if (magnitude > kMax) {
        const bool infinite = Specials == SmallFloatSpecials::kIeee && magnitude == kInfinity;
        const float special = infinite ? std::numeric_limits<float>::infinity()
                                       : std::numeric_limits<float>::quiet_NaN();
        return std::copysign(special, negative ? -1.0f : 1.0f);
      }
    }
    const int exponent = magnitude >> MantissaBits;
    const int fraction = magnitude & ((1 << MantissaBits) - 1);
    const int significand = exponent == 0 ? fraction : fraction + (1 << MantissaBits);
    const float value = std::ldexp(static_cast<float>(significand),
                                   (exponent == 0 ? 1 : exponent) - Bias - MantissaBits);
    return negative ? -value : value;
  }

  static uint8_t encode(float value) {
    const uint8_t sign = std::signbit(value) ? kSign : 0;
    if (std::isnan(value)) return nan(sign);
    if (std::isinf(value)) return overflow(sign);
    if (value == 0) return Specials == SmallFloatSpecials::kNanMinusZero ? 0 : sign;
    // The value in units of the last place of its binade; the carry of rounding up moves into the
    // exponent by itself.
    const int exponent = std::max(std::ilogb(value), 1 - Bias);
    const double units = std::ldexp(std::fabs(static_cast<double>(value)), MantissaBits - exponent);
    const int64_t code = (static_cast<int64_t>(exponent + Bias - 1) << MantissaBits) +
                         static_cast<int64_t>(std::nearbyint(units));
    if (code > kMax) return overflow(sign);
    if (code == 0 && Specials == SmallFloatSpecials::kNanMinusZero) return 0;
    return sign | static_cast<uint8_t>(code);
  }

  static constexpr uint8_t overflow(uint8_t sign) {
    switch (Specials) {
      case SmallFloatSpecials::kIeee:
        return sign | kInfinity;
      case SmallFloatSpecials::kNone:
        return sign | kMax;
      default:
        return nan(sign);
    }
  }
};

using Float8E5M2 = SmallFloat<5, 2, 15, SmallFloatSpecials::kIeee>;
using Float8E4M3FN = SmallFloat<4, 3, 7, SmallFloatSpecials::kNanAllOnes>;
using Float8E4M3FNUZ = SmallFloat<4, 3, 8, SmallFloatSpecials::kNanMinusZero>;
using Float8E4M3B11FNUZ = SmallFloat<4, 3, 11, SmallFloatSpecials::kNanMinusZero>;
using Float8E5M2FNUZ = SmallFloat<5, 2, 16, SmallFloatSpecials::kNanMinusZero>;
// In the low four bits of its byte.
using Float4E2M1FN = SmallFloat<2, 1, 1, SmallFloatSpecials::kNone>;

template <>
inline constexpr DType dtype_of<Float8E5M2> = DType::kFloat8E5M2;
template <>
inline constexpr DType dtype_of<Float8E4M3FN> = DType::kFloat8E4M3FN;
template <>
inline constexpr DType dtype_of<Float8E4M3FNUZ> = DType::kFloat8E4M3FNUZ;
template <>
inline constexpr DType dtype_of<Float8E4M3B11FNUZ> = DType::kFloat8E4M3B11FNUZ;
template <>
inline constexpr DType dtype_of<Float8E5M2FNUZ> = DType::kFloat8E5M2FNUZ;
template <>
inline constexpr DType dtype_of<Float4E2M1FN> = DType::kFloat4E2M1FN;

}  // namespace millrace
