#include "millrace/ops/math/cast_loops.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

template <class T>
void to_bool(const void* from, void* to, int64_t n) {
  const T* x = static_cast<const T*>(from);
  int8_t* y = static_cast<int8_t*>(to);
  constexpr int64_t kStep = vec::kLanes<T>;
  typedef int8_t Bytes __attribute__((vector_size(kStep)));
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    const auto set = vec::load(x + i) != vec::Vec<T>{};
    const Bytes bytes = __builtin_convertvector(set, Bytes) & 1;
    __builtin_memcpy(y + i, &bytes, sizeof bytes);
  }
  for (; i < n; ++i) y[i] = x[i] != T{};
}

// Towards zero. What does not fit, NaN too, is the least integer.
void float_to_int32(const void* from, void* to, int64_t n) {
  const float* x = static_cast<const float*>(from);
  int32_t* y = static_cast<int32_t*>(to);
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_si512(y + i, _mm512_maskz_cvttps_epi32(0xffff, _mm512_loadu_ps(x + i)));
#elif defined(__AVX2__)
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i),
                        _mm256_cvttps_epi32(_mm256_loadu_ps(x + i)));
  }
#elif defined(__SSE2__)
  for (; i + 4 <= n; i += 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), _mm_cvttps_epi32(_mm_loadu_ps(x + i)));
  }
#elif defined(__aarch64__)
  const int32x4_t least = vdupq_n_s32(INT32_MIN);
  for (; i + 4 <= n; i += 4) {
    const float32x4_t v = vld1q_f32(x + i);
    const uint32x4_t large = vcgeq_f32(v, vdupq_n_f32(0x1p31F));  // else it would be the largest
    const uint32x4_t nan = vmvnq_u32(vceqq_f32(v, v));
    vst1q_s32(y + i, vbslq_s32(vorrq_u32(large, nan), least, vcvtq_s32_f32(v)));
  }
#endif
  for (; i < n; ++i) {
    y[i] = x[i] >= -0x1p31F && x[i] < 0x1p31F ? static_cast<int32_t>(x[i]) : INT32_MIN;
  }
}

CastLoops::Loop find(DType from, DType to) {
  if (from == DType::kFloat && to == DType::kBool) return &to_bool<float>;
  if (from == DType::kInt32 && to == DType::kBool) return &to_bool<int32_t>;
  if (from == DType::kFloat && to == DType::kInt32) return &float_to_int32;
  return nullptr;
}

constexpr CastLoops kCastLoops = {&find};

}  // namespace

template <>
const CastLoops& isa_table<CastLoops, Isa::MR_ISA>() {
  return kCastLoops;
}

}  // namespace millrace
