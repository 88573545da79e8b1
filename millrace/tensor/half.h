#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "millrace/base/str_cat.h"
#include "millrace/tensor/dtype.h"

// The two 16-bit floating types. Both convert to float exactly; from float they round to nearest,
// ties to even, overflow to infinity, and keep NaNs NaN (with the payload bits that fit). Other
// numbers convert by way of float. Arithmetic is done in float and rounded once per operation.

namespace millrace {

constexpr float half_bits_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
  const uint32_t normal = ((exponent == 31 ? 255 : exponent + 112) << 23) | (mantissa << 13);
  return std::bit_cast<float>(sign | (exponent == 0 ? subnormal : normal));
}

constexpr uint16_t float_to_half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN
    const uint32_t payload = (magnitude >> 13) & 0x3ff;
    return static_cast<uint16_t>(sign | 0x7c00 | (payload != 0 ? payload : 0x200));
  }
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);  // 65536 and over
  if (magnitude < 0x38800000) {
    // Below the smallest normal half: one ulp of [0.5, 1) is the unit of subnormal halves, so the
    // addition rounds in the right place.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

constexpr float bfloat16_bits_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t float_to_bfloat16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    const uint32_t top = bits >> 16;
    return static_cast<uint16_t>((top & 0x7f) != 0 ? top : top | 0x40);
  }
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// What Half and BFloat16 share; Self is one of them.
template <class Self>
struct Float16Base {
  uint16_t bits = 0;

  static constexpr Self from_bits(uint16_t bits) {
    Self result;
    result.bits = bits;
    return result;
  }

  friend constexpr Self operator+(Self a, Self b) { return Self(float(a) + float(b)); }
  friend constexpr Self operator-(Self a, Self b) { return Self(float(a) - float(b)); }
  friend constexpr Self operator*(Self a, Self b) { return Self(float(a) * float(b)); }
  friend constexpr Self operator/(Self a, Self b) { return Self(float(a) / float(b)); }
  friend constexpr Self operator-(Self a) { return from_bits(a.bits ^ 0x8000); }
  friend constexpr Self operator+(Self a) { return a; }
  friend constexpr Self& operator+=(Self& a, Self b) { return a = a + b; }
  friend constexpr Self& operator-=(Self& a, Self b) { return a = a - b; }
  friend constexpr Self& operator*=(Self& a, Self b) { return a = a * b; }
  friend constexpr Self& operator/=(Self& a, Self b) { return a = a / b; }
  friend constexpr bool operator==(Self a, Self b) { return float(a) == float(b); }
  friend constexpr bool operator!=(Self a, Self b) { return float(a) != float(b); }
  friend constexpr bool operator<(Self a, Self b) { return float(a) < float(b); }
  friend constexpr bool operator<=(Self a, Self b) { return float(a) <= float(b); }
  friend constexpr bool operator>(Self a, Self b) { return float(a) > float(b); }
  friend constexpr bool operator>=(Self a, Self b) { return float(a) >= float(b); }
  friend void append_to(std::string& out, Self v) { append_to(out, float(v)); }
};

// IEEE binary16: 5 bits of exponent, 10 of mantissa.
struct Half : Float16Base<Half> {
  constexpr Half() = default;
  template <class T>
    requires(std::is_arithmetic_v<T>)
  explicit constexpr Half(T value) {
    bits = float_to_half_bits(static_cast<float>(value));
  }
  constexpr operator float() const {  // NOLINT(google-explicit-constructor): exact
    return half_bits_to_float(bits);
  }
};

// The upper half of a float: 8 bits of exponent, 7 of mantissa.
struct BFloat16 : Float16Base<BFloat16> {
  constexpr BFloat16() = default;
  template <class T>
    requires(std::is_arithmetic_v<T>)
  explicit constexpr BFloat16(T value) {
    bits = float_to_bfloat16_bits(static_cast<float>(value));
  }
  explicit constexpr BFloat16(Half value) : BFloat16(static_cast<float>(value)) {}
  constexpr operator float() const {  // NOLINT(google-explicit-constructor): exact
    return bfloat16_bits_to_float(bits);
  }
};

static_assert(sizeof(Half) == 2 && std::is_trivially_copyable_v<Half>);
static_assert(sizeof(BFloat16) == 2 && std::is_trivially_copyable_v<BFloat16>);

template <>
inline constexpr DType dtype_of<Half> = DType::kHalf;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::kBFloat16;

}  // namespace millrace

template <>
class std::numeric_limits<millrace::Half> {
  using T = millrace::Half;

 public:
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr bool has_signaling_NaN = true;
  static constexpr float_denorm_style has_denorm = denorm_present;
  static constexpr bool has_denorm_loss = false;
  static constexpr float_round_style round_style = round_to_nearest;
  static constexpr bool is_iec559 = true;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr int digits = 11;
  static constexpr int digits10 = 3;
  static constexpr int max_digits10 = 5;
  static constexpr int radix = 2;
  static constexpr int min_exponent = -13;
  static constexpr int min_exponent10 = -4;
  static constexpr int max_exponent = 16;
  static constexpr int max_exponent10 = 4;
  static constexpr bool traps = false;
  static constexpr bool tinyness_before = false;
  static constexpr T min() { return T::from_bits(0x0400); }
  static constexpr T lowest() { return T::from_bits(0xfbff); }
  static constexpr T max() { return T::from_bits(0x7bff); }
  static constexpr T epsilon() { return T::from_bits(0x1400); }
  static constexpr T round_error() { return T::from_bits(0x3800); }
  static constexpr T infinity() { return T::from_bits(0x7c00); }
  static constexpr T quiet_NaN() { return T::from_bits(0x7e00); }
  static constexpr T signaling_NaN() { return T::from_bits(0x7d00); }
  static constexpr T denorm_min() { return T::from_bits(0x0001); }
};

template <>
class std::numeric_limits<millrace::BFloat16> {
  using T = millrace::BFloat16;

 public:
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr bool has_signaling_NaN = true;
  static constexpr float_denorm_style has_denorm = denorm_present;
  static constexpr bool has_denorm_loss = false;
  static constexpr float_round_style round_style = round_to_nearest;
  static constexpr bool is_iec559 = false;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr int digits = 8;
  static constexpr int digits10 = 2;
  static constexpr int max_digits10 = 4;
  static constexpr int radix = 2;
  static constexpr int min_exponent = -125;
  static constexpr int min_exponent10 = -37;
  static constexpr int max_exponent = 128;
  static constexpr int max_exponent10 = 38;
  static constexpr bool traps = false;
  static constexpr bool tinyness_before = false;
  static constexpr T min() { return T::from_bits(0x0080); }
  static constexpr T lowest() { return T::from_bits(0xff7f); }
  static constexpr T max() { return T::from_bits(0x7f7f); }
  static constexpr T epsilon() { return T::from_bits(0x3c00); }
  static constexpr T round_error() { return T::from_bits(0x3f00); }
  static constexpr T infinity() { return T::from_bits(0x7f80); }
  static constexpr T quiet_NaN() { return T::from_bits(0x7fc0); }
  static constexpr T signaling_NaN() { return T::from_bits(0x7fa0); }
  static constexpr T denorm_min() { return T::from_bits(0x0001); }
};
