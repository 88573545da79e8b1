#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// Which rows each segment has, in the order in which they are added: those of segment s are
// rows[starts[s]], ..., rows[starts[s + 1] - 1], or these numbers themselves where `rows` is null.
struct SegmentRows {
  const int64_t* starts;
  const int64_t* rows;
};

// Sums of rows, for T = float, double, int32_t, int64_t; integers wrap.
template <class T>
struct SegmentLoops {
  // Row s of y becomes the sum of its rows of x, for first <= s < last: zero, then one row after
  // the other. Rows of both have `stride` elements, of which the first `cols` are summed.
  void (*sum)(const SegmentRows& segments, const T* x, int64_t stride, int64_t cols, int64_t first,
              int64_t last, T* y);
};

}  // namespace millrace
