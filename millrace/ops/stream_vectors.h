#pragma once

#include "millrace/ops/vector.h"

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

// Writes a vector around the caches, where there is such an instruction. `to` is aligned to the
// vector's size.
template <class V>
MR_VECTOR_FN void stream_vector(void* to, V v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) {
    return _mm512_stream_si512(static_cast<__m512i*>(to), vec::bit_cast<__m512i>(v));
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32) {
    return _mm256_stream_si256(static_cast<__m256i*>(to), vec::bit_cast<__m256i>(v));
  }
#endif
#if defined(__SSE2__)
  if constexpr (sizeof(V) == 16) {
    return _mm_stream_si128(static_cast<__m128i*>(to), vec::bit_cast<__m128i>(v));
  }
#endif
  __builtin_memcpy(to, &v, sizeof v);
}

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
