#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// What a softmax does with `rows` rows of n elements of T, float or double, that follow each other.
// The order in which a row's elements are added depends on n alone, not on the instruction set nor
// on the other rows, so results have the same bits everywhere.
template <class T>
struct SoftmaxRows {
  // y = exp(x) / sum(exp(x)), and its logarithm. `y` may be `x`.
  void (*softmax)(const T* x, int64_t rows, int64_t n, T* y);
  void (*log_softmax)(const T* x, int64_t rows, int64_t n, T* y);
  // Writes softmax(x) - labels to y and the sum of -labels[i] log(softmax(x)[i]) to the row's loss.
  // A label that is zero adds nothing, even where its probability is zero.
  void (*cross_entropy)(const T* x, const T* labels, int64_t rows, int64_t n, T* y, T* losses);
  // The same where the label of one class of each row, in [0, n), is one and those of all others
  // are zero. `y` may be null: the losses alone.
  void (*class_cross_entropy)(const T* x, const int64_t* classes, int64_t rows, int64_t n, T* y,
                              T* losses);
};

}  // namespace millrace
