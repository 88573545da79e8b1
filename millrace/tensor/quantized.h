#pragma once

#include <cstdint>

#include "millrace/tensor/dtype.h"

// Integers that stand for real numbers through a range kept beside the tensor, and integers of four
// and two bits. Storage only: kernels convert to the plain integer, which `value` is.

namespace millrace {

struct QInt8 {
  int8_t value = 0;
  friend constexpr bool operator==(QInt8, QInt8) = default;
};
struct QUInt8 {
  uint8_t value = 0;
  friend constexpr bool operator==(QUInt8, QUInt8) = default;
};
struct QInt16 {
  int16_t value = 0;
  friend constexpr bool operator==(QInt16, QInt16) = default;
};
struct QUInt16 {
  uint16_t value = 0;
  friend constexpr bool operator==(QUInt16, QUInt16) = default;
};
struct QInt32 {
  int32_t value = 0;
  friend constexpr bool operator==(QInt32, QInt32) = default;
};

// An integer of `Bits` bits in a byte of its own; values wrap, as those of the wider types do. The
// byte always holds the value itself (sign-extended for the signed types).
template <int Bits, bool Signed>
struct NarrowInt {
  int8_t value = 0;

  constexpr NarrowInt() = default;
  explicit constexpr NarrowInt(int v) : value(wrap(v)) {}
  explicit constexpr operator int() const { return value; }
  friend constexpr bool operator==(NarrowInt, NarrowInt) = default;

  static constexpr int kMin = Signed ? -(1 << (Bits - 1)) : 0;
  static constexpr int kMax = Signed ? (1 << (Bits - 1)) - 1 : (1 << Bits) - 1;

 private:
  static constexpr int8_t wrap(int v) {
    const int low = v & ((1 << Bits) - 1);
    return static_cast<int8_t>(low > kMax ? low - (1 << Bits) : low);
  }
};

using Int4 = NarrowInt<4, true>;
using UInt4 = NarrowInt<4, false>;
using Int2 = NarrowInt<2, true>;
using UInt2 = NarrowInt<2, false>;

template <>
inline constexpr DType dtype_of<QInt8> = DType::kQInt8;
template <>
inline constexpr DType dtype_of<QUInt8> = DType::kQUInt8;
template <>
inline constexpr DType dtype_of<QInt16> = DType::kQInt16;
template <>
inline constexpr DType dtype_of<QUInt16> = DType::kQUInt16;
template <>
inline constexpr DType dtype_of<QInt32> = DType::kQInt32;
template <>
inline constexpr DType dtype_of<Int4> = DType::kInt4;
template <>
inline constexpr DType dtype_of<UInt4> = DType::kUInt4;
template <>
inline constexpr DType dtype_of<Int2> = DType::kInt2;
template <>
inline constexpr DType dtype_of<UInt2> = DType::kUInt2;

}  // namespace millrace
