#pragma once

#include <cstdint>
#include <type_traits>

// The functions of vector.h, which includes this, for scalars on a GPU.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {
namespace vec {

template <class V>
inline constexpr bool is_vec = false;
template <class V>
using Element = V;
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class V>
MR_DEVICE_FN V lit(double value) {
  return static_cast<V>(value);
}
template <class V, class F>
MR_DEVICE_FN V map(V x, F f) {
  return f(x);
}
template <class V, class F>
MR_DEVICE_FN V map(V x, V y, F f) {
  return f(x, y);
}

#define MR_DEFINE_WRAPPING(name, op)                                                     \
  template <class V>                                                                     \
  MR_DEVICE_FN V name(V a, V b) {                                                        \
    if constexpr (std::is_integral_v<V>) {                                               \
      return static_cast<V>(static_cast<Wrapping<V>>(a) op static_cast<Wrapping<V>>(b)); \
    } else {                                                                             \
      return a op b;                                                                     \
    }                                                                                    \
  }
MR_DEFINE_WRAPPING(add, +)
MR_DEFINE_WRAPPING(sub, -)
MR_DEFINE_WRAPPING(mul, *)
#undef MR_DEFINE_WRAPPING

template <class V>
MR_DEVICE_FN V neg(V x) {
  if constexpr (std::is_integral_v<V>) {
    return sub(V{}, x);
  } else {
    return -x;
  }
}
template <class V>
MR_DEVICE_FN V lesser(V a, V b) {
  return a < b ? a : b;
}
template <class V>
MR_DEVICE_FN V greater(V a, V b) {
  return a > b ? a : b;
}
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
  if constexpr (std::is_unsigned_v<V>) {
    return x;
  } else if constexpr (std::is_integral_v<V>) {
    return x < V{} ? neg(x) : x;
  } else {
    return sizeof(V) == 4 ? ::fabsf(x) : ::fabs(x);
  }
}

// One function of CUDA's in each precision.
#define MR_DEFINE_MATH(name, of_float, of_double)                           \
  template <class V>                                                        \
  MR_DEVICE_FN V name(V x) {                                                \
    return static_cast<V>(sizeof(V) == 4 ? ::of_float(x) : ::of_double(x)); \
  }
MR_DEFINE_MATH(rint, rintf, rint)
MR_DEFINE_MATH(floor, floorf, floor)
MR_DEFINE_MATH(ceil, ceilf, ceil)
MR_DEFINE_MATH(trunc, truncf, trunc)
MR_DEFINE_MATH(sqrt, sqrtf, sqrt)
MR_DEFINE_MATH(exp, expf, exp)
MR_DEFINE_MATH(expm1, expm1f, expm1)
MR_DEFINE_MATH(log, logf, log)
MR_DEFINE_MATH(log1p, log1pf, log1p)
MR_DEFINE_MATH(tanh, tanhf, tanh)
MR_DEFINE_MATH(erf, erff, erf)
MR_DEFINE_MATH(erfc, erfcf, erfc)
MR_DEFINE_MATH(cos, cosf, cos)
MR_DEFINE_MATH(sin, sinf, sin)
MR_DEFINE_MATH(tan, tanf, tan)
MR_DEFINE_MATH(acos, acosf, acos)
MR_DEFINE_MATH(asin, asinf, asin)
MR_DEFINE_MATH(atan, atanf, atan)
#undef MR_DEFINE_MATH
#define MR_DEFINE_MATH_2(name, of_float, of_double)                               \
  template <class V>                                                              \
  MR_DEVICE_FN V name(V x, V y) {                                                 \
    return static_cast<V>(sizeof(V) == 4 ? ::of_float(x, y) : ::of_double(x, y)); \
  }
MR_DEFINE_MATH_2(copysign, copysignf, copysign)
MR_DEFINE_MATH_2(pow, powf, pow)
MR_DEFINE_MATH_2(fmod, fmodf, fmod)
#undef MR_DEFINE_MATH_2

template <class V>
MR_DEVICE_FN V sigmoid(V x) {
  const V e = exp(-abs(x));
  return (x < V{} ? e : lit<V>(1)) / (lit<V>(1) + e);
}

}  // namespace vec
}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
