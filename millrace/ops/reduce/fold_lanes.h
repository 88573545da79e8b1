#pragma once

#include <cstdint>

#include "millrace/ops/vector.h"

// How the elements of a row that are spread over lanes become one.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

// Every instruction set folds a row in as many lanes as four of the widest registers have: element
// i in lane i % kFoldLanes.
template <class A>
inline constexpr int64_t kFoldLanes = 256 / static_cast<int64_t>(sizeof(A));
// Rows up to here are folded one element after the other.
inline constexpr int64_t kFoldSerial = 16;
template <class A>
inline constexpr int64_t kFoldRegisters = kFoldLanes<A> / vec::kLanes<A>;

// All lanes, from the outer halves inwards; as far as registers go one register at a time.
template <class A, class Op>
MR_VECTOR_FN A fold_lanes(vec::Vec<A> (&acc)[kFoldRegisters<A>]) {
  constexpr int64_t kWidth = vec::kLanes<A>;
#pragma GCC unroll 8
  for (int64_t half = kFoldRegisters<A> / 2; half > 0; half /= 2) {
    for (int64_t r = 0; r < half; ++r) acc[r] = Op::apply(acc[r], acc[r + half]);
  }
  alignas(vec::kVectorBytes) A lanes[kWidth];
  vec::store(lanes, acc[0]);
  for (int64_t half = kWidth / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) lanes[k] = Op::apply(lanes[k], lanes[k + half]);
  }
  return lanes[0];
}

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
