#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "millrace/tensor/half.h"

// Random bits to random numbers, bit for bit as TensorFlow does it.

namespace millrace {

// In [0, 1): the bits become the mantissa of a number in [1, 2).
inline float uniform_float(uint32_t x) {
  return std::bit_cast<float>((uint32_t{127} << 23) | (x & 0x7fffff)) - 1.0F;
}
inline double uniform_double(uint32_t high, uint32_t low) {
  const uint64_t mantissa = (uint64_t{high & 0xfffff} << 32) | low;
  return std::bit_cast<double>((uint64_t{1023} << 52) | mantissa) - 1.0;
}
inline Half uniform_half(uint32_t x) {
  return Half::from_bits(static_cast<uint16_t>((15 << 10) | (x & 0x3ff))) - Half(1.0F);
}
inline BFloat16 uniform_bfloat16(uint32_t x) {
  return BFloat16::from_bits(static_cast<uint16_t>((127 << 7) | (x & 0x7f))) - BFloat16(1.0F);
}

// Two numbers of the standard normal distribution from two uniform ones (Box and Muller).
inline void normal_pair(uint32_t x0, uint32_t x1, float* out) {
  const float u = std::max(uniform_float(x0), 1.0e-7F);
  const auto angle = static_cast<float>(2.0 * std::numbers::pi * uniform_float(x1));
  const float radius = std::sqrt(-2.0F * std::log(u));
  out[0] = std::sin(angle) * radius;
  out[1] = std::cos(angle) * radius;
}
inline void normal_pair(uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3, double* out) {
  const double u = std::max(uniform_double(x0, x1), 1.0e-7);
  const double angle = 2.0 * std::numbers::pi * uniform_double(x2, x3);
  const double radius = std::sqrt(-2.0 * std::log(u));
  out[0] = std::sin(angle) * radius;
  out[1] = std::cos(angle) * radius;
}

}  // namespace millrace
