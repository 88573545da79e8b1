#pragma once

#include <cstdint>

#include "millrace/tensor/complex.h"

// Decompositions of one matrix in row-major order. W is double or Complex128: matrices of float are
// converted, which keeps plain algorithms accurate.

namespace millrace {

template <class T>
using WideNumber = std::conditional_t<is_complex_v<T>, Complex128, double>;

// PA = LU with partial pivoting, over `a` [n, n]; L has ones on its diagonal, which are not stored.
// Row i of PA is row pivots[i] of A at the time of step i. Returns the sign of P.
template <class W>
int lu_factor(W* a, int64_t n, int64_t* pivots);
// Whether U has a zero on its diagonal.
template <class W>
bool lu_singular(const W* lu, int64_t n);
// Solves AX = B (or A^H X = B) over `b` [n, columns].
template <class W>
void lu_solve(const W* lu, const int64_t* pivots, int64_t n, bool adjoint, W* b, int64_t columns);

// Solves TX = B over `b` [n, columns], T the lower or upper triangle of `t` (or its adjoint). False
// for a zero on the diagonal.
template <class W>
bool triangular_solve(const W* t, int64_t n, bool lower, bool adjoint, W* b, int64_t columns);

// A = LL^H over `a`, of which only the lower triangle is read; zeros above. False unless A is
// positive definite.
template <class W>
bool cholesky_factor(W* a, int64_t n);

// Eigenvalues, rising, and eigenvectors (columns of `v`, may be null) of the symmetric matrix in
// the lower triangle of `a`, which is overwritten. Cyclic Jacobi rotations.
void symmetric_eigen(double* a, int64_t n, double* values, double* v);

// Singular values, falling, of `a` [m, n], m >= n, by one-sided Jacobi rotations: over `a` its left
// singular vectors, and right ones in `v` [n, n].
template <class W>
void jacobi_svd(W* a, int64_t m, int64_t n, double* values, W* v);

// A = QR over `a` [m, n], which becomes R with a real diagonal and zeros below; `q` [m, columns],
// columns <= m, becomes the first columns of Q. Householder reflections.
template <class W>
void householder_qr(W* a, int64_t m, int64_t n, W* q, int64_t columns);

// Makes the columns [from, columns) of `q` [m, columns] orthonormal to each other and to those
// before, which are orthonormal. columns <= m.
template <class W>
void complete_basis(W* q, int64_t m, int64_t columns, int64_t from);

}  // namespace millrace
