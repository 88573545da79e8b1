#pragma once

#include <cstddef>
#include <utility>

#include "millrace/ops/vector.h"

// Squares of elements transposed in registers, for x_isa.cc sources.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {
namespace vec {

// Of two vectors that are cut into groups of `group` bytes, and these into units of `unit` bytes:
// one unit of each in turn, from the lower halves of the groups (half = 0) or the upper ones. The
// lane where element k comes from.
template <size_t size, size_t unit, size_t group>
constexpr int interleaved_lane(size_t k, size_t lanes, size_t half) {
  constexpr size_t kUnit = unit / size, kGroup = group / unit;
  const size_t i = k / kUnit, place = i % kGroup;
  const size_t from = i / kGroup * kGroup + half * (kGroup / 2) + place / 2;
  return static_cast<int>(from * kUnit + k % kUnit + place % 2 * lanes);
}
template <size_t unit, size_t group, size_t half, class V, size_t... k>
MR_VECTOR_FN V interleave(V a, V b, std::index_sequence<k...>) {
  return __builtin_shufflevector(
      a, b, interleaved_lane<sizeof(a[0]), unit, group>(k, sizeof...(k), half)...);
}

// rows[i * stride], i < n, are n vectors whose groups have n units: unit j of row i becomes unit i
// of row j, in each group.
template <size_t unit, size_t group, size_t stride, class V>
MR_VECTOR_FN void transpose_units(V* rows) {
  constexpr size_t kRows = group / unit;
  constexpr std::make_index_sequence<sizeof(V) / sizeof(rows[0][0])> kAll;
#pragma GCC unroll 8
  for (size_t step = 1; step < kRows; step *= 2) {  // of a perfect shuffle
    V mixed[kRows];
#pragma GCC unroll 16
    for (size_t i = 0; i < kRows / 2; ++i) {
      const V a = rows[i * stride], b = rows[(i + kRows / 2) * stride];
      mixed[2 * i] = interleave<unit, group, 0>(a, b, kAll);
      mixed[2 * i + 1] = interleave<unit, group, 1>(a, b, kAll);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < kRows; ++i) rows[i * stride] = mixed[i];
  }
}

// As many rows as a row has elements: element j of row i becomes element i of row j.
template <class V>
MR_VECTOR_FN void transpose(V* rows) {
  constexpr size_t kLane = 16;  // bytes that most shuffles stay within
  constexpr size_t kSize = sizeof(rows[0][0]), kRows = sizeof(V) / kSize, kPart = kLane / kSize;
#pragma GCC unroll 16
  for (size_t i = 0; i < kRows; i += kPart) transpose_units<kSize, kLane, 1>(rows + i);
  if constexpr (sizeof(V) > kLane) {
#pragma GCC unroll 16
    for (size_t i = 0; i < kPart; ++i) transpose_units<kLane, sizeof(V), kPart>(rows + i);
  }
}

}  // namespace vec
}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
