#pragma once

#include <cstdint>

#include "millrace/tensor/complex.h"

namespace millrace {

// A = Q T Q^H with T upper triangular over `a` [n, n], its eigenvalues on the diagonal, and Q
// unitary in `q` [n, n] (null: not wanted). Reflections and then shifted QR steps. False where
// these do not converge, as for matrices with infinities.
bool schur(Complex128* a, int64_t n, Complex128* q);

// Of the upper triangular `t` [n, n], over it: the principal square root.
void triangular_sqrt(Complex128* t, int64_t n);
// The principal logarithm; `scratch` has 2 n^2. Not finite for a singular matrix.
void triangular_log(Complex128* t, int64_t n, Complex128* scratch);
// The eigenvectors of Q T Q^H, columns of length 1 over `q`; `scratch` has n^2.
void eigenvectors(const Complex128* t, int64_t n, Complex128* q, Complex128* scratch);

}  // namespace millrace
