#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "millrace/base/status.h"

namespace millrace {

// The type of a tensor's elements. The numbers are TensorFlow's DataType, so a dtype is read from
// and written to messages by value.
enum class DType : int32_t {
  kInvalid = 0,
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUInt8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kQInt8 = 11,
  kQUInt8 = 12,
  kQInt32 = 13,
  kBFloat16 = 14,
  kQInt16 = 15,
  kQUInt16 = 16,
  kUInt16 = 17,
  kComplex128 = 18,
  kHalf = 19,
  kResource = 20,
  kVariant = 21,
  kUInt32 = 22,
  kUInt64 = 23,
  kFloat8E5M2 = 24,
  kFloat8E4M3FN = 25,
  kFloat8E4M3FNUZ = 26,
  kFloat8E4M3B11FNUZ = 27,
  kFloat8E5M2FNUZ = 28,
  kInt4 = 29,  // one element per byte in memory, as all four-bit and two-bit types
  kUInt4 = 30,
  kInt2 = 31,
  kUInt2 = 32,
  kFloat4E2M1FN = 33,
};
inline constexpr int kNumDTypes = 34;

// A reference type (an edge that carries a variable itself, not its value) is the base type + 100.
inline constexpr int kRefOffset = 100;
constexpr bool is_ref(DType t) { return static_cast<int>(t) > kRefOffset; }
constexpr DType base_type(DType t) {
  return is_ref(t) ? static_cast<DType>(static_cast<int>(t) - kRefOffset) : t;
}
constexpr DType ref_type(DType t) {
  return is_ref(t) ? t : static_cast<DType>(static_cast<int>(t) + kRefOffset);
}

// True for a dtype of the list above other than kInvalid, or a reference to one.
constexpr bool is_valid(DType t) {
  int n = static_cast<int>(base_type(t));
  return n > 0 && n < kNumDTypes;
}

struct DTypeInfo {
  std::string_view name;
  size_t size;
};
extern const DTypeInfo kDTypeInfo[kNumDTypes];  // by number

// Bytes of one element in memory; for kString, kResource and kVariant the size of the C++ object;
// 0 for an invalid type.
inline size_t dtype_size(DType t) {
  return is_valid(t) ? kDTypeInfo[static_cast<int>(base_type(t))].size : 0;
}

// True when elements are plain bytes that may be copied with memcpy: all but kString, kResource and
// kVariant.
constexpr bool is_plain(DType t) {
  t = base_type(t);
  return t != DType::kString && t != DType::kResource && t != DType::kVariant;
}

// "float", "int32", "bfloat16", "float_ref": the names that op definitions use. "dtype(77)" for a
// number that is no type.
std::string dtype_name(DType t);
// The dtype of such a name, also "float32", "float64", "float16"; kInvalid when there is none.
DType dtype_from_name(std::string_view name);

inline void append_to(std::string& out, DType t) { out += dtype_name(t); }

// A set of base dtypes.
class TypeSet {
 public:
  constexpr TypeSet() = default;
  constexpr TypeSet(std::initializer_list<DType> types) {  // NOLINT(google-explicit-constructor)
    for (DType t : types) bits_ |= bit(t);
  }
  constexpr bool contains(DType t) const { return (bits_ & bit(base_type(t))) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr TypeSet operator|(TypeSet a, TypeSet b) {
    a.bits_ |= b.bits_;
    return a;
  }
  friend constexpr TypeSet operator&(TypeSet a, TypeSet b) {
    a.bits_ &= b.bits_;
    return a;
  }
  friend constexpr TypeSet operator-(TypeSet a, TypeSet b) {
    a.bits_ &= ~b.bits_;
    return a;
  }
  friend constexpr bool operator==(TypeSet, TypeSet) = default;

 private:
  static constexpr uint64_t bit(DType t) {
    int n = static_cast<int>(t);
    return n > 0 && n < kNumDTypes ? uint64_t{1} << n : 0;
  }
  uint64_t bits_ = 0;
};

// "{float, double}".
void append_to(std::string& out, TypeSet set);

inline constexpr TypeSet kFloating = {DType::kHalf, DType::kBFloat16, DType::kFloat,
                                      DType::kDouble};
inline constexpr TypeSet kComplex = {DType::kComplex64, DType::kComplex128};
inline constexpr TypeSet kSignedIntegers = {DType::kInt8, DType::kInt16, DType::kInt32,
                                            DType::kInt64};
inline constexpr TypeSet kUnsignedIntegers = {DType::kUInt8, DType::kUInt16, DType::kUInt32,
                                              DType::kUInt64};
inline constexpr TypeSet kIntegers = kSignedIntegers | kUnsignedIntegers;
inline constexpr TypeSet kIndexTypes = {DType::kInt32, DType::kInt64};
inline constexpr TypeSet kRealNumbers = kFloating | kIntegers;
inline constexpr TypeSet kQuantized = {DType::kQInt8, DType::kQUInt8, DType::kQInt16,
                                       DType::kQUInt16, DType::kQInt32};
// Everything that can be added and multiplied.
inline constexpr TypeSet kNumbers = kRealNumbers | kComplex;
// TensorFlow's "numbertype": numbers and the quantised types.
inline constexpr TypeSet kNumberTypes = kNumbers | kQuantized;

// dtype_of<float> is DType::kFloat. Each element type's header specialises it; the plain ones here.
template <class T>
inline constexpr DType dtype_of = DType::kInvalid;
template <>
inline constexpr DType dtype_of<float> = DType::kFloat;
template <>
inline constexpr DType dtype_of<double> = DType::kDouble;
template <>
inline constexpr DType dtype_of<int8_t> = DType::kInt8;
template <>
inline constexpr DType dtype_of<int16_t> = DType::kInt16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::kInt32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::kInt64;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::kUInt8;
template <>
inline constexpr DType dtype_of<uint16_t> = DType::kUInt16;
template <>
inline constexpr DType dtype_of<uint32_t> = DType::kUInt32;
template <>
inline constexpr DType dtype_of<uint64_t> = DType::kUInt64;
template <>
inline constexpr DType dtype_of<bool> = DType::kBool;
template <>
inline constexpr DType dtype_of<std::string> = DType::kString;

}  // namespace millrace
