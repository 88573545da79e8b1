#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__SSE2__)
#include <immintrin.h>
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
//   exp 1 ulp, expm1 2, log 1, log1p 2, sigmoid 3, tanh 3
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
#else
#define MR_DEVICE_FN inline __attribute__((always_inline))
#endif
#define MR_VECTOR_FN inline __attribute__((always_inline))

namespace millrace {
inline namespace MR_ISA_NAMESPACE {
namespace vec {

#if defined(__AVX512F__) && defined(__AVX512DQ__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
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
  return Vec<T>{} + value;
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

// The larger of two; NaN when either is.
template <class V>
MR_DEVICE_FN V max(V a, V b) {
  const V larger = a > b ? a : b;
  return a != a ? a : larger;
}
template <class V>
MR_DEVICE_FN V min(V a, V b) {
  const V smaller = a < b ? a : b;
  return a != a ? a : smaller;
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
    x = x > lit<V>(89) ? lit<V>(89) : x;
    x = x < lit<V>(-105) ? lit<V>(-105) : x;
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
    V c = x > lit<V>(89) ? lit<V>(89) : x;
    c = c < lit<V>(-20) ? lit<V>(-20) : c;
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
    const V c = magnitude > lit<V>(10) ? lit<V>(10) : magnitude;
    const V t = expm1(c + c);
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

// Lane by lane through the C library.
#define MR_DEFINE_LIBRARY_FN(name)     \
  template <class V>                   \
  MR_DEVICE_FN V name(V x) {           \
    using E = Element<V>;              \
    return map(x, [](E e) -> E {       \
      if constexpr (sizeof(E) == 4) {  \
        return __builtin_##name##f(e); \
      } else {                         \
        return __builtin_##name(e);    \
      }                                \
    });                                \
  }
MR_DEFINE_LIBRARY_FN(acos)
MR_DEFINE_LIBRARY_FN(asin)
MR_DEFINE_LIBRARY_FN(atan)
MR_DEFINE_LIBRARY_FN(cos)
MR_DEFINE_LIBRARY_FN(erf)
MR_DEFINE_LIBRARY_FN(erfc)
MR_DEFINE_LIBRARY_FN(sin)
MR_DEFINE_LIBRARY_FN(tan)
#undef MR_DEFINE_LIBRARY_FN

template <class V>
MR_DEVICE_FN V pow(V x, V y) {
  using E = Element<V>;
  return map(x, y, [](E a, E b) -> E {
    if constexpr (sizeof(E) == 4) {
      return __builtin_powf(a, b);
    } else {
      return __builtin_pow(a, b);
    }
  });
}

template <class V>
MR_DEVICE_FN V fmod(V x, V y) {
  using E = Element<V>;
  return map(x, y, [](E a, E b) -> E {
    if constexpr (sizeof(E) == 4) {
      return __builtin_fmodf(a, b);
    } else {
      return __builtin_fmod(a, b);
    }
  });
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
