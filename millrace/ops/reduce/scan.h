#pragma once

#include <algorithm>
#include <cstdint>

#include "millrace/kernel/kernel.h"

namespace millrace {

// A tensor seen as [outer, length, inner], walked along the middle: what running sums, products and
// recurrences have in common.
struct ScanGeometry {
  // Columns that are walked side by side, at most.
  static constexpr int64_t kColumns = 256;

  int64_t outer = 1, length = 1, inner = 1;
  bool reverse = false;  // from the last element to the first

  ScanGeometry(const Shape& shape, int axis, bool backwards)
      : length(shape.dim(axis)), reverse(backwards) {
    for (int i = 0; i < shape.rank(); ++i) {
      if (i != axis) (i < axis ? outer : inner) *= shape.dim(i);
    }
  }

  // Calls body(first, step, columns) for every group of neighbouring columns, on the context's
  // threads: the elements of column k lie at first + k + r * step for r < length, in the order of
  // the walk. No size is zero.
  template <class Body>
  void for_each_columns(const KernelContext& ctx, double cost_per_element, Body body) const {
    const int64_t groups = (inner + kColumns - 1) / kColumns;
    const auto elements = static_cast<double>(length * std::min(inner, kColumns));
    ctx.parallel_for(outer * groups, cost_per_element * elements, [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        const int64_t column = u % groups * kColumns;
        const int64_t row = u / groups * length + (reverse ? length - 1 : 0);
        body(row * inner + column, reverse ? -inner : inner, std::min(kColumns, inner - column));
      }
    });
  }
};

}  // namespace millrace
