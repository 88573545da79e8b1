#pragma once

#include <cstdint>

#include "millrace/ops/vector.h"
#include "millrace/tensor/dtype.h"

// Loops between 16-bit floating types and float, for the sources of each instruction set. They do
// what tensor/half.h says, except that a signalling NaN may come out quiet.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

inline void bfloat16_to_float(const void* from, float* to, int64_t n) {
  const uint16_t* bits = static_cast<const uint16_t*>(from);
  for (int64_t i = 0; i < n; ++i)
    to[i] = vec::bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16);
}

inline void float_to_bfloat16(const float* from, void* to, int64_t n) {
  uint16_t* out = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = vec::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    out[i] = static_cast<uint16_t>((nan ? bits | 0x400000 : rounded) >> 16);
  }
}

#if defined(__F16C__)
inline void half_to_float(const void* from, float* to, int64_t n) {
  const uint16_t* bits = static_cast<const uint16_t*>(from);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bits + i))));
  }
  for (; i < n; ++i) to[i] = _cvtsh_ss(bits[i]);
}

inline void float_to_half(const float* from, void* to, int64_t n) {
  uint16_t* out = static_cast<uint16_t*>(to);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) out[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}
#endif

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
