#pragma once

#include <type_traits>

#include "millrace/base/status.h"
#include "millrace/tensor/complex.h"
#include "millrace/tensor/dtype.h"
#include "millrace/tensor/float8.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/quantized.h"

// From a dtype known at run time to code for an element type known at compile time:
//
//   return dispatch<FloatingTypes>(x.dtype(), [&]<class T>() { ... x.data<T>() ... });

namespace millrace {

template <class... Ts>
struct TypeList {};

template <class... Lists>
struct ConcatTypesImpl;
template <class... Ts>
struct ConcatTypesImpl<TypeList<Ts...>> {
  using Type = TypeList<Ts...>;
};
template <class... Ts, class... Us, class... Rest>
struct ConcatTypesImpl<TypeList<Ts...>, TypeList<Us...>, Rest...>
    : ConcatTypesImpl<TypeList<Ts..., Us...>, Rest...> {};
template <class... Lists>
using ConcatTypes = typename ConcatTypesImpl<Lists...>::Type;

using FloatingTypes = TypeList<float, double, Half, BFloat16>;
using ComplexTypes = TypeList<Complex64, Complex128>;
using SignedIntegerTypes = TypeList<int8_t, int16_t, int32_t, int64_t>;
using UnsignedIntegerTypes = TypeList<uint8_t, uint16_t, uint32_t, uint64_t>;
using IntegerTypes = ConcatTypes<SignedIntegerTypes, UnsignedIntegerTypes>;
using IndexTypes = TypeList<int32_t, int64_t>;
using RealTypes = ConcatTypes<FloatingTypes, IntegerTypes>;
using NumberTypes = ConcatTypes<RealTypes, ComplexTypes>;
using QuantizedTypes = TypeList<QInt8, QUInt8, QInt16, QUInt16, QInt32>;
using NarrowTypes = TypeList<Float8E5M2, Float8E4M3FN, Float8E4M3FNUZ, Float8E4M3B11FNUZ,
                             Float8E5M2FNUZ, Int4, UInt4, Int2, UInt2, Float4E2M1FN>;
// Everything that is_plain().
using PlainTypes = ConcatTypes<NumberTypes, TypeList<bool>, QuantizedTypes, NarrowTypes>;

// The dtypes of a list.
template <class List>
inline constexpr TypeSet type_set_of = {};
template <class... Ts>
inline constexpr TypeSet type_set_of<TypeList<Ts...>> = {dtype_of<Ts>...};

[[gnu::cold]] Status dispatch_failed(DType dtype, TypeSet expected);

template <class T, class F>
Status dispatch_call(F& f) {
  if constexpr (std::is_void_v<decltype(f.template operator()<T>())>) {
    f.template operator()<T>();
    return ok_status();
  } else {
    return f.template operator()<T>();
  }
}

template <class F, class... Ts>
Status dispatch_over(DType dtype, F& f, TypeList<Ts...>) {
  Status status;
  const bool found =
      ((dtype == dtype_of<Ts> ? (status = dispatch_call<Ts>(f), true) : false) || ...);
  return found ? status : dispatch_failed(dtype, type_set_of<TypeList<Ts...>>);
}

// Calls f.operator()<T>() for the T of `List` whose dtype is `dtype` and returns its Status (OK
// when it returns nothing). A valid dtype that is not in the list is UNIMPLEMENTED, a number that
// is no dtype INVALID_ARGUMENT; both name it and what was expected.
template <class List, class F>
Status dispatch(DType dtype, F&& f) {
  return dispatch_over(dtype, f, List());
}

}  // namespace millrace
