#pragma once

#include <complex>
#include <string>

#include "millrace/tensor/dtype.h"

namespace millrace {

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

template <>
inline constexpr DType dtype_of<Complex64> = DType::kComplex64;
template <>
inline constexpr DType dtype_of<Complex128> = DType::kComplex128;

// True for Complex64 and Complex128.
template <class T>
inline constexpr bool is_complex_v =
    dtype_of<T> == DType::kComplex64 || dtype_of<T> == DType::kComplex128;

// The type of a complex number's parts; T itself for the rest.
template <class T>
struct RealPart {
  using Type = T;
};
template <class T>
struct RealPart<std::complex<T>> {
  using Type = T;
};

// "(1,2)".
template <class T>
void append_complex(std::string& out, const std::complex<T>& v) {
  out += str_cat('(', v.real(), ',', v.imag(), ')');
}

}  // namespace millrace
