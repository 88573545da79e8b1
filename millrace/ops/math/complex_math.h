#pragma once

#include <complex>

#include "millrace/ops/vector.h"

// The functions of vector.h for complex numbers, so that a table entry's formula serves them too.
// Only sources for the baseline instruction set use them.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {
namespace vec {

template <class T>
std::complex<T> rint(std::complex<T> x) {
  return {rint(x.real()), rint(x.imag())};
}

#define MR_DEFINE_COMPLEX_FN(name)          \
  template <class T>                        \
  std::complex<T> name(std::complex<T> x) { \
    return std::name(x);                    \
  }
MR_DEFINE_COMPLEX_FN(cos)
MR_DEFINE_COMPLEX_FN(exp)
MR_DEFINE_COMPLEX_FN(log)
MR_DEFINE_COMPLEX_FN(sin)
MR_DEFINE_COMPLEX_FN(sqrt)
MR_DEFINE_COMPLEX_FN(tan)
MR_DEFINE_COMPLEX_FN(tanh)
#undef MR_DEFINE_COMPLEX_FN

// exp(a+ib) - 1 = expm1(a) cos(b) - 2 sin(b/2)^2 + i exp(a) sin(b).
template <class T>
std::complex<T> expm1(std::complex<T> x) {
  const T half_sine = std::sin(x.imag() / 2);
  return {std::expm1(x.real()) * std::cos(x.imag()) - 2 * half_sine * half_sine,
          std::exp(x.real()) * std::sin(x.imag())};
}

// log|1+x| from |1+x|^2 - 1 = 2a + a^2 + b^2, which keeps small x.
template <class T>
std::complex<T> log1p(std::complex<T> x) {
  const T a = x.real(), b = x.imag();
  if (std::abs(a) > T(0.5) || std::abs(b) > T(0.5)) return std::log(x + T(1));
  return {std::log1p(a * (2 + a) + b * b) / 2, std::atan2(b, 1 + a)};
}

template <class T>
std::complex<T> sigmoid(std::complex<T> x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <class T>
std::complex<T> pow(std::complex<T> x, std::complex<T> y) {
  // The standard's logarithm of zero makes NaN of these.
  if (y == T(0)) return T(1);
  if (x == T(0) && y.imag() == 0 && y.real() > 0) return T(0);
  return std::pow(x, y);
}

}  // namespace vec
}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
