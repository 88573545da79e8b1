#pragma once

#include <cstdint>

namespace millrace {

// The two reductions of a softmax over a row of n elements of T, float or double. Sums run in a
// fixed number of lanes whatever the instruction set, so results have the same bits on all of them.
template <class T>
struct SoftmaxRows {
  // The largest element, NaN if there is one, minus infinity for n = 0.
  T (*max)(const T* x, int64_t n);
  // The sum of exp(x[i] - shift); the terms are written to `out` unless it is null. `out` may be
  // `x`.
  T (*exp_sum)(const T* x, T shift, int64_t n, T* out);
};

// The set for best_isa().
template <class T>
const SoftmaxRows<T>& softmax_rows();

// One table per instruction set; the vector ones exist on x86-64 only.
struct SoftmaxRowsTable {
  SoftmaxRows<float> f32;
  SoftmaxRows<double> f64;
};
extern const SoftmaxRowsTable kSoftmaxRowsAvx2;
extern const SoftmaxRowsTable kSoftmaxRowsAvx512;

}  // namespace millrace
