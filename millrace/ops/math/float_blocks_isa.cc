#include "millrace/ops/math/elementwise.h"
#include "millrace/ops/vector.h"
#include "millrace/tensor/half.h"

// Loops between 16-bit floating types and float. They do what tensor/half.h says, except that a
// signalling NaN may come out quiet.

namespace millrace {
namespace {

void bfloat16_to_float(const void* from, float* to, int64_t n) {
  const uint16_t* bits = static_cast<const uint16_t*>(from);
  for (int64_t i = 0; i < n; ++i)
    to[i] = vec::bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16);
}

void float_to_bfloat16(const float* from, void* to, int64_t n) {
  uint16_t* out = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = vec::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    out[i] = static_cast<uint16_t>((nan ? bits | 0x400000 : rounded) >> 16);
  }
}

#if defined(__F16C__)
void half_to_float(const void* from, float* to, int64_t n) {
  const uint16_t* bits = static_cast<const uint16_t*>(from);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bits + i))));
  }
  for (; i < n; ++i) to[i] = _cvtsh_ss(bits[i]);
}

void float_to_half(const float* from, void* to, int64_t n) {
  uint16_t* out = static_cast<uint16_t*>(to);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) out[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__aarch64__)
// Four at a time; the last ones in a vector of their own.
void half_to_float(const void* from, float* to, int64_t n) {
  const uint16_t* bits = static_cast<const uint16_t*>(from);
  for (; n >= 4; n -= 4, bits += 4, to += 4) {
    vst1q_f32(to, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(bits))));
  }
  uint16_t some[4] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = bits[i];
  const float32x4_t last = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(some)));
  for (int64_t i = 0; i < n; ++i) to[i] = last[i];
}

void float_to_half(const float* from, void* to, int64_t n) {
  uint16_t* out = static_cast<uint16_t*>(to);
  for (; n >= 4; n -= 4, from += 4, out += 4) {
    vst1_u16(out, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from))));
  }
  float some[4] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = from[i];
  const uint16x4_t last = vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(some)));
  for (int64_t i = 0; i < n; ++i) out[i] = last[i];
}
#else
void half_to_float(const void* from, float* to, int64_t n) {
  const Half* half = static_cast<const Half*>(from);
  for (int64_t i = 0; i < n; ++i) to[i] = half[i];
}

void float_to_half(const float* from, void* to, int64_t n) {
  Half* half = static_cast<Half*>(to);
  for (int64_t i = 0; i < n; ++i) half[i] = Half(from[i]);
}
#endif

constexpr FloatBlocksTable kFloatBlocks = {{half_to_float, float_to_half},
                                           {bfloat16_to_float, float_to_bfloat16}};

}  // namespace

template <>
const FloatBlocksTable& isa_table<FloatBlocksTable, Isa::MR_ISA>() {
  return kFloatBlocks;
}

}  // namespace millrace
