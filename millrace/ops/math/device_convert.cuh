#pragma once

#include <limits>
#include <type_traits>

#include "millrace/ops/device_values.cuh"

// What Cast does to an element on a GPU.

namespace millrace {

// `v` as an integer in the range of I; see to_integer() in cast.cc.
template <class I, class F>
__host__ __device__ __forceinline__ I to_integer(F v) {
  constexpr I kLow = std::numeric_limits<I>::min(), kHigh = std::numeric_limits<I>::max();
  if constexpr (sizeof(I) >= 4 && std::is_signed_v<I>) {
    const bool fits = v >= static_cast<F>(kLow) && v < -static_cast<F>(kLow);
    return fits ? static_cast<I>(v) : kLow;
  } else {
    if (v != v) return 0;
    if (v <= static_cast<F>(kLow)) return kLow;
    if (v >= static_cast<F>(kHigh)) return kHigh;
    return static_cast<I>(v);
  }
}

template <class To, class From>
__host__ __device__ __forceinline__ To convert(From v) {
  if constexpr (std::is_same_v<To, bool>) {
    return v != From{};
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return to_integer<To>(v);
  } else if constexpr (std::is_arithmetic_v<To>) {
    return static_cast<To>(v);
  } else {
    return narrow<To>(static_cast<float>(v));
  }
}

}  // namespace millrace
