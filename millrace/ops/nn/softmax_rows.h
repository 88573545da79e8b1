#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// What a softmax does with a row of n elements of T, float or double. Sums run in a fixed number of
// lanes whatever the instruction set, so results have the same bits on all of them.
template <class T>
struct SoftmaxRows {
  // y = exp(x) / sum(exp(x)), and its logarithm. `y` may be `x`.
  void (*softmax)(const T* x, int64_t n, T* y);
  void (*log_softmax)(const T* x, int64_t n, T* y);
  // Writes softmax(x) - labels to y and returns the sum of -labels[i] log(softmax(x)[i]). A label
  // that is zero adds nothing, even where its probability is zero.
  T (*cross_entropy)(const T* x, const T* labels, int64_t n, T* y);
  // The same where the label of one class is one and those of all others are zero.
  T (*class_cross_entropy)(const T* x, int64_t label, int64_t n, T* y);
};

}  // namespace millrace
