#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// The one way to write vector code: GCC vector types as wide as the instruction set that this
// source is compiled for, and mathematical functions over them.
//
// Loops for several instruction sets stand in a source x_isa.cc (see isa_table.h), in an unnamed
// namespace. What such sources share stands in headers, between
//
//   inline namespace MR_ISA_NAMESPACE { ... }
//
// They call only what is there, force-inlined functions (MR_VECTOR_FN), builtins, or functions of
// the C library: any other inline function compiled for AVX-512 may be the copy that the linker
// keeps for everybody. A test reads the symbols of the objects.
//
// Functions take scalars and vectors alike: x < y ? a : b, x * y and the functions below mean the
// same for float and for Vec<float>. Results have the same bits on every instruction set and in
// every lane: there is one polynomial, never an approximate instruction, and no fused multiply-add
// (the build passes -ffp-contract=off). Errors of the float functions, measured over all floats
// (vector_test.cc):
//
//   exp 1 ulp, expm1 2, log 1, log1p 2, sigmoid 3, tanh 3, erf 2, erfc 0.6, sin 0.51, cos 0.51,
//   tan 0.51, asin 0.51, acos 0.51, atan 0.51, pow 0.51 (of random pairs); fmod is exact
//
// with NaN, infinities, signed zeros and subnormal results as C99 has them. double goes lane by
// lane through the C library.

// The build names the set where it is not the baseline.
#if !defined(MR_ISA)
#define MR_ISA kBaseline
#define MR_ISA_NAMESPACE isa_baseline
#endif

#if defined(__CUDACC__)
#define MR_DEVICE_FN __host__ __device__ __forceinline__
#define MR_VECTOR_FN __host__ __device__ __forceinline__
// A GPU has scalars alone, and functions of its own.
#include "millrace/ops/device_math.h"
#else
#define MR_DEVICE_FN inline __attribute__((always_inline))
#define MR_VECTOR_FN inline __attribute__((always_inline))

namespace millrace {
inline namespace MR_ISA_NAMESPACE {
namespace vec {

#if defined(__AVX512F__) && defined(__AVX512DQ__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;  // SSE, NEON
#endif
// How many vectors the processor holds.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorRegisters = 16;
#endif

template <class T>
struct VecType {
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};
// As many T as fit in a register. T is a plain arithmetic type.
template <class T>
using Vec = typename VecType<T>::Type;

template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class V>
inline constexpr bool is_vec = requires(V v) { v[0]; };

// What V is made of: Element<Vec<float>> and Element<float> are float.
template <class V, bool = is_vec<V>>
struct ElementType {
  using Type = V;
};
template <class V>
struct ElementType<V, true> {
  using Type = std::remove_cvref_t<decltype(V{}[0])>;
};
template <class V>
using Element = typename ElementType<V>::Type;

// V with elements of another type of the same size.
template <class V, class T>
using WithElement = std::conditional_t<is_vec<V>, Vec<T>, T>;

template <class T>
using IntOfSize = std::conditional_t<sizeof(T) == 8, int64_t,
                                     std::conditional_t<sizeof(T) == 4, int32_t, int16_t>>;
// The signed integers that V's bits are: what a comparison of vectors yields.
template <class V>
using Bits = WithElement<V, IntOfSize<Element<V>>>;

template <class T>
MR_VECTOR_FN Vec<T> load(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <class T>
MR_VECTOR_FN void store(T* p, Vec<T> v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// The constant `value` in every lane.
template <class V>
MR_VECTOR_FN V lit(double value) {
  if constexpr (is_vec<V>) {
    return V{} + static_cast<Element<V>>(value);
  } else {
    return static_cast<V>(value);
  }
}

template <class T>
MR_VECTOR_FN Vec<T> broadcast(T value) {
  return value - Vec<T>{};  // a sum would lose the sign of -0
}

template <class To, class V>
MR_VECTOR_FN To bit_cast(V v) {
  return __builtin_bit_cast(To, v);
}

// f(lane) for every lane.
template <class V, class F>
MR_VECTOR_FN V map(V x, F f) {
  if constexpr (is_vec<V>) {
    V y;
    for (int i = 0; i < kLanes<Element<V>>; ++i) y[i] = f(x[i]);
    return y;
  } else {
    return f(x);
  }
}
template <class V, class F>
MR_VECTOR_FN V map(V x, V y, F f) {
  if constexpr (is_vec<V>) {
    V z = x;
    for (int i = 0; i < kLanes<Element<V>>; ++i) z[i] = f(x[i], y[i]);
    return z;
  } else {
    return f(x, y);
  }
}

// Integer arithmetic that wraps; the plain operation for floating types.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
#define MR_DEFINE_WRAPPING(name, op)                                                     \
  template <class V>                                                                     \
  MR_DEVICE_FN V name(V a, V b) {                                                        \
    using E = Element<V>;                                                                \
    if constexpr (!std::is_integral_v<E>) {                                              \
      return a op b;                                                                     \
    } else if constexpr (is_vec<V>) {                                                    \
      using U = Vec<std::make_unsigned_t<E>>;                                            \
      return bit_cast<V>(bit_cast<U>(a) op bit_cast<U>(b));                              \
    } else {                                                                             \
      return static_cast<V>(static_cast<Wrapping<V>>(a) op static_cast<Wrapping<V>>(b)); \
    }                                                                                    \
  }
MR_DEFINE_WRAPPING(add, +)
MR_DEFINE_WRAPPING(sub, -)
MR_DEFINE_WRAPPING(mul, *)
#undef MR_DEFINE_WRAPPING

template <class V>
MR_DEVICE_FN V neg(V x) {
  if constexpr (std::is_integral_v<Element<V>>) {
    return sub(V{}, x);
  } else {
    return -x;
  }
}

// a < b ? a : b and a > b ? a : b, in one instruction where there is one: b when either is NaN.
template <class V>
MR_DEVICE_FN V lesser(V a, V b) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  if constexpr (std::is_same_v<V, Vec<float>>) {
    return bit_cast<V>(_mm512_maskz_min_ps(0xffff, bit_cast<__m512>(a), bit_cast<__m512>(b)));
  } else if constexpr (std::is_same_v<V, Vec<double>>) {
    return bit_cast<V>(_mm512_maskz_min_pd(0xff, bit_cast<__m512d>(a), bit_cast<__m512d>(b)));
  } else {
    return a < b ? a : b;
  }
#else
  return a < b ? a : b;
#endif
}
template <class V>
MR_DEVICE_FN V greater(V a, V b) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  if constexpr (std::is_same_v<V, Vec<float>>) {
    return bit_cast<V>(_mm512_maskz_max_ps(0xffff, bit_cast<__m512>(a), bit_cast<__m512>(b)));
  } else if constexpr (std::is_same_v<V, Vec<double>>) {
    return bit_cast<V>(_mm512_maskz_max_pd(0xff, bit_cast<__m512d>(a), bit_cast<__m512d>(b)));
  } else {
    return a > b ? a : b;
  }
#else
  return a > b ? a : b;
#endif
}

// The larger of two; NaN when either is.
template <class V>
MR_DEVICE_FN V max(V a, V b) {
  return a != a ? a : greater(a, b);
}
template <class V>
MR_DEVICE_FN V min(V a, V b) {
  return a != a ? a : lesser(a, b);
}

template <class V>
MR_DEVICE_FN V abs(V x) {
  using E = Element<V>;
  if constexpr (std::is_unsigned_v<E>) {
    return x;
  } else if constexpr (std::is_integral_v<E>) {
    return x < V{} ? neg(x) : x;
  } else {
    using B = Bits<V>;
    const B sign = B{} + static_cast<Element<B>>(IntOfSize<E>{1} << (sizeof(E) * 8 - 1));
    return bit_cast<V>(static_cast<B>(bit_cast<B>(x) & ~sign));
  }
}

// The magnitude of x with the sign of `sign`; floating types.
template <class V>
MR_DEVICE_FN V copysign(V x, V sign) {
  using B = Bits<V>;
  using E = Element<B>;
  const B mask = B{} + static_cast<E>(static_cast<E>(1) << (sizeof(E) * 8 - 1));
  return bit_cast<V>(static_cast<B>((bit_cast<B>(x) & ~mask) | (bit_cast<B>(sign) & mask)));
}

// To the nearest integer, ties to even. Adding and subtracting 2^23 (2^52) rounds; what is larger
// is an integer already.
template <class V>
MR_DEVICE_FN V rint(V x) {
  const V big = lit<V>(sizeof(Element<V>) == 8 ? 0x1p52 : 0x1p23);
  const V magnitude = abs(x);
  return magnitude < big ? copysign((magnitude + big) - big, x) : x;
}

template <class V>
MR_DEVICE_FN V floor(V x) {
  const V r = rint(x);
  return r > x ? r - lit<V>(1) : r;
}

template <class V>
MR_DEVICE_FN V ceil(V x) {
  const V r = rint(x);
  return r < x ? copysign(r + lit<V>(1), x) : r;
}

template <class V>
MR_DEVICE_FN V trunc(V x) {
  return copysign(floor(abs(x)), x);
}

template <class V>
MR_DEVICE_FN V sqrt(V x) {
  using E = Element<V>;
  if constexpr (!is_vec<V>) {
    return static_cast<E>(sizeof(E) == 4 ? __builtin_sqrtf(x) : __builtin_sqrt(x));
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  } else if constexpr (sizeof(E) == 4) {
    return bit_cast<V>(_mm512_maskz_sqrt_ps(0xffff, bit_cast<__m512>(x)));
  } else {
    return bit_cast<V>(_mm512_maskz_sqrt_pd(0xff, bit_cast<__m512d>(x)));
#elif defined(__AVX2__)
  } else if constexpr (sizeof(E) == 4) {
    return bit_cast<V>(_mm256_sqrt_ps(bit_cast<__m256>(x)));
  } else {
    return bit_cast<V>(_mm256_sqrt_pd(bit_cast<__m256d>(x)));
#elif defined(__SSE2__)
  } else if constexpr (sizeof(E) == 4) {
    return bit_cast<V>(_mm_sqrt_ps(bit_cast<__m128>(x)));
  } else {
    return bit_cast<V>(_mm_sqrt_pd(bit_cast<__m128d>(x)));
#elif defined(__aarch64__)
  } else if constexpr (sizeof(E) == 4) {
    return bit_cast<V>(vsqrtq_f32(bit_cast<float32x4_t>(x)));
  } else {
    return bit_cast<V>(vsqrtq_f64(bit_cast<float64x2_t>(x)));
#else
  } else {
    return map(x, [](E e) { return sqrt(e); });
#endif
  }
}

// x = n ln 2 + r with |r| <= ln(2) / 2, for |x| < 150; n as an integer and e^r - 1.
template <class V>
struct ExpParts {
  Bits<V> n;
  V expm1_r;
};

template <class V>
MR_VECTOR_FN ExpParts<V> exp_parts(V x) {
  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits.
  const V magic = lit<V>(12582912.0);
  const V t = x * lit<V>(1.44269504088896341) + magic;
  const V n = t - magic;
  // ln 2 in two parts; n times the first is exact.
  const V r = (x - n * lit<V>(0.693359375)) - n * lit<V>(-2.12194440e-4);
  V p = lit<V>(1.9875691500e-4);
  p = p * r + lit<V>(1.3981999507e-3);
  p = p * r + lit<V>(8.3334519073e-3);
  p = p * r + lit<V>(4.1665795894e-2);
  p = p * r + lit<V>(1.6666665459e-1);
  p = p * r + lit<V>(5.0000001201e-1);
  return {sub(bit_cast<Bits<V>>(t), bit_cast<Bits<V>>(magic)), r + p * (r * r)};
}

// 2^n for n in [-126, 127].
template <class V>
MR_VECTOR_FN V exp2_int(Bits<V> n) {
  return bit_cast<V>(static_cast<Bits<V>>((n + 127) << 23));
}

template <class V>
MR_DEVICE_FN V exp(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    // The ends lie past overflow and past the smallest subnormal; NaN passes both comparisons.
    x = lesser(lit<V>(89), x);
    x = greater(lit<V>(-105), x);
    const ExpParts<V> parts = exp_parts(x);
    // In two steps, since 2^n itself may not be a normal number.
    const Bits<V> half = parts.n >> 1;
    const V e = parts.expm1_r + lit<V>(1);
    return (e * exp2_int<V>(half)) * exp2_int<V>(parts.n - half);
  } else {
    return map(x, [](E e) -> E { return __builtin_exp(e); });
  }
}

template <class V>
MR_DEVICE_FN V expm1(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    const V c = greater(lit<V>(-20), lesser(lit<V>(89), x));
    const ExpParts<V> parts = exp_parts(c);
    const V half_scale = exp2_int<V>(parts.n - 1);
    const V y = (half_scale * parts.expm1_r + (half_scale - lit<V>(0.5))) * lit<V>(2);
    return abs(x) < lit<V>(1e-8) ? x : y;
  } else {
    return map(x, [](E e) -> E { return __builtin_expm1(e); });
  }
}

template <class V>
MR_DEVICE_FN V log(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    using B = Bits<V>;
    const B zero = {};
    const auto subnormal = x < lit<V>(0x1p-126);
    const V scaled = subnormal ? x * lit<V>(0x1p23) : x;
    // x = m * 2^n with m in [sqrt(1/2), sqrt(2)).
    const B bits = sub(bit_cast<B>(scaled), static_cast<B>(zero + 0x3f3504f3));
    const B n = (bits >> 23) - (subnormal ? zero + 23 : zero);
    const V m = bit_cast<V>(static_cast<B>((bits & 0x007fffff) + 0x3f3504f3));
    const V f = m - lit<V>(1);
    V nf;
    if constexpr (is_vec<V>) {
      nf = __builtin_convertvector(n, V);
    } else {
      nf = static_cast<V>(n);
    }
    V p = lit<V>(7.0376836292e-2);
    p = p * f + lit<V>(-1.1514610310e-1);
    p = p * f + lit<V>(1.1676998740e-1);
    p = p * f + lit<V>(-1.2420140846e-1);
    p = p * f + lit<V>(1.4249322787e-1);
    p = p * f + lit<V>(-1.6668057665e-1);
    p = p * f + lit<V>(2.0000714765e-1);
    p = p * f + lit<V>(-2.4999993993e-1);
    p = p * f + lit<V>(3.3333331174e-1);
    const V ff = f * f;
    V y = p * f * ff + nf * lit<V>(-2.12194440e-4) - lit<V>(0.5) * ff;
    y = (f + y) + nf * lit<V>(0.693359375);
    const V inf = lit<V>(__builtin_huge_val());
    y = x == inf ? inf : y;
    y = x == V{} ? -inf : y;
    y = x < V{} ? lit<V>(__builtin_nan("")) : y;
    return x != x ? x : y;
  } else {
    return map(x, [](E e) -> E { return __builtin_log(e); });
  }
}

template <class V>
MR_DEVICE_FN V log1p(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    const V u = x + lit<V>(1);
    // What the addition rounded away enters as its first-order effect on the logarithm.
    const V y = log(u) + (x - (u - lit<V>(1))) / u;
    const V inf = lit<V>(__builtin_huge_val());
    const V below = x == lit<V>(-1) ? -inf : y;
    const V zero = x == V{} ? x : below;
    return x == inf ? x : zero;
  } else {
    return map(x, [](E e) -> E { return __builtin_log1p(e); });
  }
}

template <class V>
MR_DEVICE_FN V tanh(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    const V magnitude = abs(x);
    const V c = lesser(lit<V>(10), magnitude);
    // e^(2c) - 1
    const ExpParts<V> parts = exp_parts(c + c);
    const V scale = exp2_int<V>(parts.n);
    const V t = scale * parts.expm1_r + (scale - lit<V>(1));
    return copysign(t / (t + lit<V>(2)), x);
  } else {
    return map(x, [](E e) -> E { return __builtin_tanh(e); });
  }
}

// 1 / (1 + exp(-x)), accurate at both ends.
template <class V>
MR_DEVICE_FN V sigmoid(V x) {
  const V e = exp(-abs(x));
  return (x < V{} ? e : lit<V>(1)) / (lit<V>(1) + e);
}

// f(x), f(x, y) in double, rounded once: for functions of float whose steps lose too much in float.
typedef float HalfOfFloats __attribute__((vector_size(kVectorBytes / 2)));
MR_VECTOR_FN Vec<double> widen(HalfOfFloats x) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return bit_cast<Vec<double>>(_mm512_maskz_cvtps_pd(0xff, bit_cast<__m256>(x)));
#else
  return __builtin_convertvector(x, Vec<double>);
#endif
}
MR_VECTOR_FN HalfOfFloats narrow(Vec<double> x) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return bit_cast<HalfOfFloats>(_mm512_maskz_cvtpd_ps(0xff, bit_cast<__m512d>(x)));
#else
  return __builtin_convertvector(x, HalfOfFloats);
#endif
}
template <size_t first, class V, size_t... lanes>
MR_VECTOR_FN Vec<double> widen_lanes(V x, std::index_sequence<lanes...>) {
  return widen(__builtin_shufflevector(x, x, static_cast<int>(first + lanes)...));
}
template <size_t... lanes>
MR_VECTOR_FN Vec<float> narrow_lanes(Vec<double> low, Vec<double> high,
                                     std::index_sequence<lanes...>) {
  return __builtin_shufflevector(narrow(low), narrow(high), static_cast<int>(lanes)...);
}
template <class V, class F, class... Vs>
MR_DEVICE_FN V in_double(F f, V x, Vs... y) {
  if constexpr (is_vec<V>) {
    constexpr size_t kHalf = kLanes<double>;
    const std::make_index_sequence<kHalf> half;
    return narrow_lanes(f(widen_lanes<0>(x, half), widen_lanes<0>(y, half)...),
                        f(widen_lanes<kHalf>(x, half), widen_lanes<kHalf>(y, half)...),
                        std::make_index_sequence<2 * kHalf>());
  } else {
    return static_cast<V>(f(static_cast<double>(x), static_cast<double>(y)...));
  }
}

// Whether a comparison holds in any lane.
template <class M>
MR_DEVICE_FN bool any(M mask) {
  if constexpr (!is_vec<M>) {
    return mask;
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  } else {
    return _mm512_movepi32_mask(bit_cast<__m512i>(mask)) != 0;
#elif defined(__AVX2__)
  } else {
    return _mm256_movemask_epi8(bit_cast<__m256i>(mask)) != 0;
#elif defined(__SSE2__)
  } else {
    return _mm_movemask_epi8(bit_cast<__m128i>(mask)) != 0;
#elif defined(__aarch64__)
  } else {
    return vmaxvq_u32(bit_cast<uint32x4_t>(mask)) != 0;
#else
  } else {
    bool found = false;
    for (int i = 0; i < kLanes<Element<M>>; ++i) found |= mask[i] != 0;
    return found;
#endif
  }
}

// f(lane) in place of y's where `mask` holds.
template <class V, class M, class F>
MR_DEVICE_FN V replace(M mask, V y, V x, F f) {
  if constexpr (is_vec<V>) {
    for (int i = 0; i < kLanes<Element<V>>; ++i) {
      if (mask[i]) y[i] = f(x[i]);
    }
    return y;
  } else {
    return mask ? f(x) : y;
  }
}

template <class V>
struct IntegerParts {
  Bits<V> bits;  // of the integer, in two's complement
  V integer;
};
// The integer nearest to x, of type double, for |x| < 2^51.
template <class V>
MR_DEVICE_FN IntegerParts<V> nearest_integer(V x) {
  const V magic = lit<V>(0x1.8p52);
  const V t = x + magic;
  return {sub(bit_cast<Bits<V>>(t), bit_cast<Bits<V>>(magic)), t - magic};
}

// e^r 2^n for |r| <= ln(2) / 2, with an error of 2^-34.
template <class V>
MR_DEVICE_FN V exp_of_parts(V r, Bits<V> n) {
  const V rr = r * r;
  V p = lit<V>(0.001394620176335050993) + r * lit<V>(0.0001991413410569255972);
  p = (lit<V>(0.041666267582445194253) + r * lit<V>(0.0083332724409059300081)) + rr * p;
  p = (lit<V>(0.50000000789253594094) + r * lit<V>(0.1666666682387277131)) + rr * p;
  p = (lit<V>(1) + r) + rr * p;
  return p * bit_cast<V>(static_cast<Bits<V>>((n + 1023) << 52));
}

template <class V>
MR_DEVICE_FN V erf(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    const V a = abs(x);
    const V z = x * x;
    V p = lit<V>(0.0041588031688878);
    p = p * z + lit<V>(-0.02636022312841);
    p = p * z + lit<V>(0.11273734566437);
    p = p * z + lit<V>(-0.37611929523376);
    p = p * z + lit<V>(0.12837908596738);
    const V near = x + x * p;
    // Further out 1 - 2^(t q), which is 1 from 3.93 on.
    const V t = lesser(lit<V>(3.93), a);
    V q = lit<V>(0.00031217619600986);
    q = q * t + lit<V>(-0.004666368625812);
    q = q * t + lit<V>(0.033112298086962);
    q = q * t + lit<V>(-0.15199751236265);
    q = q * t + lit<V>(-0.91704558918974);
    q = q * t + lit<V>(-1.6281317062074);
    const V y = q * t;
    // The integer in y ends up, plus 127, in the lowest bits.
    const V magic = lit<V>(12582912.0 + 127);
    const V sum = y + magic;
    const V f = y - (sum - magic);
    V e = lit<V>(0.0013407257177908);
    e = e * f + lit<V>(0.0096718986812706);
    e = e * f + lit<V>(0.055503083654721);
    e = e * f + lit<V>(0.24022234245778);
    e = e * f + lit<V>(0.69314721491787);
    e = e * f + lit<V>(1);
    const V power = e * bit_cast<V>(static_cast<Bits<V>>(bit_cast<Bits<V>>(sum) << 23));
    return a < lit<V>(0.75) ? near : copysign(lit<V>(1) - power, x);
  } else {
    return map(x, [](E e) -> E { return __builtin_erf(e); });
  }
}

template <class V>
MR_DEVICE_FN V erfc(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    return in_double(
        [](auto d) __attribute__((always_inline)) {
          using D = decltype(d);
          // exp(-a^2) (1 + p(q)) / (1 + 2 a) with q = (a - 3) / (a + 3). At 10.1 it is below half
          // the smallest subnormal.
          const D magnitude = abs(d);
          const D a = magnitude > lit<D>(10.2) ? lit<D>(10.2) : magnitude;
          const D slope = lit<D>(1) + (a + a), above = a + lit<D>(3);
          const D inverse = lit<D>(1) / (slope * above);
          const D q = (a - lit<D>(3)) * (slope * inverse);
          D p = lit<D>(-0.00026818298878325722497);
          p = p * q + lit<D>(-0.00077769709047693218522);
          p = p * q + lit<D>(0.0020017885229605106112);
          p = p * q + lit<D>(0.002567452054068110661);
          p = p * q + lit<D>(-0.02379749930388929278);
          p = p * q + lit<D>(0.068295750114261022725);
          p = p * q + lit<D>(-0.11927098263682581123);
          p = p * q + lit<D>(0.12964641366621370050);
          p = p * q + lit<D>(-0.047562398938865966163);
          p = p * q + lit<D>(-0.13562113935271152767);
          p = p * q + lit<D>(0.25300805911721883622);
          const D z = a * a;
          const auto n = nearest_integer(z * lit<D>(-1.4426950408889634));
          const D r = -z - n.integer * lit<D>(0.69314718055994531);
          const D y = exp_of_parts(r, n.bits) * ((lit<D>(1) + p) * (above * inverse));
          return d < D{} ? lit<D>(2) - y : y;
        },
        x);
  } else {
    return map(x, [](E e) -> E { return __builtin_erfc(e); });
  }
}

// x = n pi / 2 + r with |r| <= pi / 4; the lowest two bits of n matter.
template <class V>
struct Turn {
  Bits<V> n;
  V r;
};
inline constexpr float kFarTurn = 0x1p20F;

// Of doubles that are floats, up to kFarTurn: multiples of the higher part of pi / 2 are exact.
template <class V>
MR_DEVICE_FN Turn<V> turn(V x) {
  const auto n = nearest_integer(x * lit<V>(0.63661977236758134));
  return {n.bits,
          (x - n.integer * lit<V>(0x1.921fb544p0)) - n.integer * lit<V>(0x1.0b4611a626331p-34)};
}

// Of a finite x that is further away: x times those 96 bits of 2 / pi that have a say in it.
MR_DEVICE_FN Turn<double> far_turn(float x) {
  constexpr uint32_t kBits[] = {0xa2,       0xa2f9,     0xa2f983,   0xa2f9836e, 0xf9836e4e,
                                0x836e4e44, 0x6e4e4415, 0x4e441529, 0x441529fc, 0x1529fc27,
                                0x29fc2757, 0xfc2757d1, 0x2757d1f5, 0x57d1f534, 0xd1f534dd,
                                0xf534ddc0, 0x34ddc0db, 0xddc0db62, 0xc0db6295, 0xdb629599,
                                0x6295993c, 0x95993c43, 0x993c4390, 0x3c439041};
  const uint32_t bits = bit_cast<uint32_t>(x);
  const uint32_t* window = kBits + (bits >> 26 & 15);
  const uint32_t m = ((bits & 0xffffff) | 0x800000) << (bits >> 23 & 7);
  // In units of 2^-62 quarters of a turn.
  uint64_t product = static_cast<uint64_t>(m * window[0]) << 32;
  product += static_cast<uint64_t>(m) * window[4];
  product += static_cast<uint64_t>(m) * window[8] >> 32;
  const uint64_t n = (product + (uint64_t{1} << 61)) >> 62;
  const double r = static_cast<double>(static_cast<int64_t>(product - (n << 62))) *
                   (1.5707963267948966 * 0x1p-62);
  const bool negative = bits >> 31 != 0;
  return {static_cast<int64_t>(negative ? 0 - n : n), negative ? -r : r};
}

template <class V>
struct SinCos {
  V sin, cos;
};
// Of |x| <= pi / 4.
template <class V>
MR_DEVICE_FN SinCos<V> sin_cos(V x) {
  const V z = x * x;
  V s = lit<V>(2.7183058414720947589e-6);
  s = s * z + lit<V>(-0.00019839334202626904569);
  s = s * z + lit<V>(0.0083333293837206901685);
  s = s * z + lit<V>(-0.16666666641604702800);
  V c = lit<V>(0.000024383501500277933185);
  c = c * z + lit<V>(-0.0013886680897007855249);
  c = c * z + lit<V>(0.041666620330819686745);
  c = c * z + lit<V>(-0.49999999694203008062);
  return {x * (lit<V>(1) + s * z), lit<V>(1) + c * z};
}

struct SinOfTurn {
  template <class V>
  MR_DEVICE_FN static V eval(Turn<V> t) {
    const SinCos<V> y = sin_cos(t.r);
    const V magnitude = (t.n & 1) != Bits<V>{} ? y.cos : y.sin;
    return bit_cast<V>(static_cast<Bits<V>>(bit_cast<Bits<V>>(magnitude) ^ ((t.n & 2) << 62)));
  }
};
struct CosOfTurn {
  template <class V>
  MR_DEVICE_FN static V eval(Turn<V> t) {
    return SinOfTurn::eval(Turn<V>{t.n + 1, t.r});
  }
};
struct TanOfTurn {
  template <class V>
  MR_DEVICE_FN static V eval(Turn<V> t) {
    const SinCos<V> y = sin_cos(t.r);
    const auto odd = (t.n & 1) != Bits<V>{};
    return (odd ? -y.cos : y.sin) / (odd ? y.sin : y.cos);
  }
};
template <class F, class V>
MR_DEVICE_FN V of_turn(V x) {
  const V y = in_double([](auto d) __attribute__((always_inline)) { return F::eval(turn(d)); }, x);
  const auto far = abs(x) > lit<V>(kFarTurn);
  if (__builtin_expect(!any(far), true)) return y;
  return replace(far, y, x, [](float e) {
    return __builtin_isinf(e) || e != e ? e - e : static_cast<float>(F::eval(far_turn(e)));
  });
}

#define MR_DEFINE_TURN_FN(name, Name)                              \
  template <class V>                                               \
  MR_DEVICE_FN V name(V x) {                                       \
    using E = Element<V>;                                          \
    if constexpr (std::is_same_v<E, float>) {                      \
      return of_turn<Name##OfTurn>(x);                             \
    } else {                                                       \
      return map(x, [](E e) -> E { return __builtin_##name(e); }); \
    }                                                              \
  }
MR_DEFINE_TURN_FN(cos, Cos)
MR_DEFINE_TURN_FN(sin, Sin)
MR_DEFINE_TURN_FN(tan, Tan)
#undef MR_DEFINE_TURN_FN

template <class V>
MR_DEVICE_FN V atan(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    return in_double(
        [](auto d) __attribute__((always_inline)) {
          using D = decltype(d);
          const D a = abs(d);
          const auto steep = a > lit<D>(1);
          const D t = steep ? lit<D>(1) / a : a;
          const D z = t * t;
          D p = lit<D>(0.001113366645106115089);
          p = p * z + lit<D>(-0.0073158494429298234942);
          p = p * z + lit<D>(0.022535398989146308992);
          p = p * z + lit<D>(-0.044684700155993206167);
          p = p * z + lit<D>(0.067412259862965932216);
          p = p * z + lit<D>(-0.088109290485377269041);
          p = p * z + lit<D>(0.11058180629693951967);
          p = p * z + lit<D>(-0.14279826548531156595);
          p = p * z + lit<D>(0.19999670635329957877);
          p = p * z + lit<D>(-0.33333326886627157763);
          const D y = t + t * (p * z);
          return copysign(steep ? lit<D>(1.5707963267948966) - y : y, d);
        },
        x);
  } else {
    return map(x, [](E e) -> E { return __builtin_atan(e); });
  }
}

template <class V>
struct AsinParts {
  decltype(V{} > V{}) steep;  // then asin |x| = pi / 2 - 2 y
  V y;                        // otherwise y
};
// Of doubles that are floats.
template <class V>
MR_DEVICE_FN AsinParts<V> asin_parts(V x) {
  const V a = abs(x);
  const auto steep = a > lit<V>(0.5);
  const V z = steep ? lit<V>(0.5) - lit<V>(0.5) * a : a * a;
  const V t = steep ? sqrt(z) : a;
  V p = lit<V>(0.034692128956658526127);
  p = p * z + lit<V>(0.0074698019389690704198);
  p = p * z + lit<V>(0.024618155780557497016);
  p = p * z + lit<V>(0.030110282442400282259);
  p = p * z + lit<V>(0.044660161596571312841);
  p = p * z + lit<V>(0.074999481604321061591);
  p = p * z + lit<V>(0.16666667189852024755);
  return {steep, t + t * (p * z)};
}

template <class V>
MR_DEVICE_FN V asin(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    return in_double(
        [](auto d) __attribute__((always_inline)) {
          using D = decltype(d);
          const auto parts = asin_parts(d);
          const D steep = lit<D>(1.5707963267948966) - (parts.y + parts.y);
          return copysign(parts.steep ? steep : parts.y, d);
        },
        x);
  } else {
    return map(x, [](E e) -> E { return __builtin_asin(e); });
  }
}

template <class V>
MR_DEVICE_FN V acos(V x) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    return in_double(
        [](auto d) __attribute__((always_inline)) {
          using D = decltype(d);
          const auto parts = asin_parts(d);
          const D twice = parts.y + parts.y;
          const D steep = d < D{} ? lit<D>(3.1415926535897931) - twice : twice;
          return parts.steep ? steep : lit<D>(1.5707963267948966) - copysign(parts.y, d);
        },
        x);
  } else {
    return map(x, [](E e) -> E { return __builtin_acos(e); });
  }
}

// a^y of floats, 0 < a < inf and |y| < 2^500.
template <class V>
MR_DEVICE_FN V plain_pow(V a, V y) {
  using B = Bits<V>;
  using U = WithElement<V, uint64_t>;
  // a = m 2^k with m in [sqrt(1/2), sqrt(2)). k + 1024 fills the lowest bits of a number with 2^52.
  const B one = B{} + 1;
  const B from = sub(bit_cast<B>(a), static_cast<B>(one * 0x3fe6a09e667f3bcd));
  const U shifted = bit_cast<U>(static_cast<B>(from + (one << 62))) >> 52;
  const B biased = bit_cast<B>(shifted);
  const V k = bit_cast<V>(static_cast<B>(biased | 0x4330000000000000)) - lit<V>(0x1p52 + 1024);
  const V m =
      bit_cast<V>(static_cast<B>(sub(bit_cast<B>(a), static_cast<B>((biased - 1024) << 52))));
  // log2(m) = 2 / ln(2) atanh(s), with an error of 2^-44 of itself.
  const V s = (m - lit<V>(1)) / (m + lit<V>(1));
  const V z = s * s;
  const V zz = z * z;
  V p = lit<V>(0.14286054684587839863) + z * lit<V>(0.11088090412694141899);
  p = p + zz * lit<V>(0.097921272340981136155);
  p = (lit<V>(0.33333333337904504168) + z * lit<V>(0.19999997809776222719)) + zz * p;
  V t = y * (k + (s + s * (p * z)) * lit<V>(2.8853900817779268));
  t = greater(lit<V>(-200), lesser(lit<V>(200), t));
  const auto n = nearest_integer(t);
  return exp_of_parts((t - n.integer) * lit<V>(0.69314718055994531), n.bits);
}

// x^y of floats.
template <class V>
MR_DEVICE_FN V special_pow(V x, V y) {
  const V inf = lit<V>(__builtin_huge_val());
  const V a = abs(x);
  const auto ordinary = (a > V{}) & (a < inf);
  // Infinite exponents are taken as even numbers that are large enough.
  V e = y > lit<V>(0x1p200) ? lit<V>(0x1p200) : y;
  e = e < lit<V>(-0x1p200) ? lit<V>(-0x1p200) : e;
  V z = plain_pow(ordinary ? a : lit<V>(1), e);
  const auto shrinks = (a > lit<V>(1)) ^ (y > V{});  // only asked of 0 and inf
  z = ordinary ? z : (shrinks ? V{} : inf);
  const auto whole = rint(e) == e;
  const V half = e * lit<V>(0.5);
  const V with_sign = rint(half) == half ? z : copysign(z, x);
  const V nan = lit<V>(__builtin_nan(""));
  const V negative = whole ? with_sign : (ordinary ? nan : z);
  z = x <= V{} ? negative : z;
  z = x != x ? x : z;
  z = y != y ? y : z;
  z = x == lit<V>(1) ? lit<V>(1) : z;
  return y == V{} ? lit<V>(1) : z;
}

template <class V>
MR_DEVICE_FN V pow(V x, V y) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    // x - x is NaN for infinities and NaN.
    const auto special = (x <= V{}) | (x - x != V{}) | (abs(y) >= lit<V>(0x1p100)) | (y != y);
    if (__builtin_expect(!any(special), true)) {
      return in_double(
          [](auto a, auto b) __attribute__((always_inline)) { return plain_pow(a, b); }, x, y);
    }
    return in_double(
        [](auto a, auto b) __attribute__((always_inline)) { return special_pow(a, b); }, x, y);
  } else {
    return map(x, y, [](E a, E b) -> E { return __builtin_pow(a, b); });
  }
}

struct FmodOfDoubles {
  template <class V>
  MR_DEVICE_FN V operator()(V x, V y) const {
    const V a = abs(x), b = abs(y);
    // The quotient may have been rounded up to the next integer; its product with b is exact.
    const V whole = nearest_integer(a / b - lit<V>(0.5)).integer;
    const V r = a - (whole == V{} ? V{} : whole * b);
    const V above = r < V{} ? r + b : r;
    return copysign(above >= b ? above - b : above, x);
  }
};

template <class V>
MR_DEVICE_FN V fmod(V x, V y) {
  using E = Element<V>;
  if constexpr (std::is_same_v<E, float>) {
    // Not where the integer quotient or a factor of it would be rounded.
    const V quotient = abs(x) / abs(y);
    const auto far = (quotient >= lit<V>(0x1p26)) | (quotient != quotient);
    const V z = in_double(FmodOfDoubles(), x, y);
    if (__builtin_expect(!any(far), true)) return z;
    return map(x, y, [](E a, E b) -> E { return __builtin_fmodf(a, b); });
  } else {
    return map(x, y, [](E a, E b) -> E { return __builtin_fmod(a, b); });
  }
}

// All lanes folded with f, halves first: the order depends on the number of lanes, so for results
// that must not depend on the instruction set f is exact (max, min).
template <class T, class F>
MR_VECTOR_FN T fold(Vec<T> v, F f) {
  T lanes[kLanes<T>];
  store(lanes, v);
  for (int n = kLanes<T> / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) lanes[i] = f(lanes[i], lanes[i + n]);
  }
  return lanes[0];
}

}  // namespace vec
}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace

#endif
