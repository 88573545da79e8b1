#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

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

}  // namespace millrace
