#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

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

// Lane k folded with lane k + half, lane by lane.
template <class A, class Op, int half, size_t... lanes>
MR_VECTOR_FN A fold_halves(vec::Vec<A> v, std::index_sequence<lanes...> all) {
  v = Op::apply(
      v, __builtin_shufflevector(v, v, static_cast<int>((lanes + half) % sizeof...(lanes))...));
  if constexpr (half > 1) {
    return fold_halves<A, Op, half / 2>(v, all);
  } else {
    return v[0];
  }
}

// All lanes, from the outer halves inwards; as far as registers go one register at a time.
template <class A, class Op>
MR_VECTOR_FN A fold_lanes(vec::Vec<A> (&acc)[kFoldRegisters<A>]) {
  constexpr int64_t kWidth = vec::kLanes<A>;
#pragma GCC unroll 8
  for (int64_t half = kFoldRegisters<A> / 2; half > 0; half /= 2) {
    for (int64_t r = 0; r < half; ++r) acc[r] = Op::apply(acc[r], acc[r + half]);
  }
  return fold_halves<A, Op, kWidth / 2>(acc[0], std::make_index_sequence<kWidth>());
}

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
