#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "millrace/ops/accumulate.h"
#include "millrace/ops/reduce/fold.h"
#include "millrace/tensor/complex.h"

// What Sum, Mean, Prod, Max, Min do to elements before and after they are folded.

namespace millrace {

enum class Reduction : uint8_t { kSum, kMean, kProd, kMax, kMin };

inline FoldOp fold_op(Reduction kind) {
  switch (kind) {
    case Reduction::kSum:
    case Reduction::kMean:
      return FoldOp::kSum;
    case Reduction::kProd:
      return FoldOp::kProd;
    case Reduction::kMax:
      return FoldOp::kMax;
    case Reduction::kMin:
      return FoldOp::kMin;
  }
  return FoldOp::kSum;
}

// What elements of T are folded as.
template <class T>
using Folded = std::conditional_t<std::is_integral_v<T>, int64_t, ComputeType<T>>;

// Flips the top bit, so that the order of unsigned numbers becomes that of signed ones.
inline constexpr uint64_t kTopBit = uint64_t{1} << 63;

// Elements of T as accumulators; `ordered`: for a maximum or a minimum.
template <class T, class A, bool ordered>
void to_folded(const void* from, int64_t n, A* to) {
  const T* x = static_cast<const T*>(from);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (ordered && std::is_same_v<T, uint64_t>) {
      to[i] = static_cast<A>(x[i] ^ kTopBit);
    } else {
      to[i] = static_cast<A>(x[i]);
    }
  }
}

// Results from accumulators; a mean is a sum of `count` elements. `to` may be `from`.
template <class T, class A>
void from_folded(Reduction kind, const A* from, int64_t n, int64_t count, T* to) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_floating_point_v<A>) {
      to[i] = static_cast<T>(kind == Reduction::kMean ? from[i] / static_cast<A>(count) : from[i]);
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      const uint64_t bits = static_cast<uint64_t>(from[i]);
      const bool ordered = kind == Reduction::kMax || kind == Reduction::kMin;
      const uint64_t sum = kind == Reduction::kMean ? bits / static_cast<uint64_t>(count) : bits;
      to[i] = ordered ? bits ^ kTopBit : sum;
    } else {
      to[i] = static_cast<T>(kind == Reduction::kMean ? from[i] / count : from[i]);
    }
  }
}

// The result of folding no elements.
template <class T>
T empty_result(Reduction kind) {
  if constexpr (is_complex_v<T>) {
    using R = typename RealPart<T>::Type;
    if (kind == Reduction::kMean) return T(std::numeric_limits<R>::quiet_NaN());
    return T(kind == Reduction::kProd ? R{1} : R{0});
  } else {
    using Limits = std::numeric_limits<T>;
    switch (kind) {
      case Reduction::kSum:
        return T(0);
      case Reduction::kMean:
        return Limits::has_quiet_NaN ? Limits::quiet_NaN() : T(0);
      case Reduction::kProd:
        return T(1);
      case Reduction::kMax:
        return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
      case Reduction::kMin:
        return Limits::has_infinity ? Limits::infinity() : Limits::max();
    }
    return T(0);
  }
}

}  // namespace millrace
