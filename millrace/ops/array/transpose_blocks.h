#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// A matrix that is written transposed: to[j * to_stride + i] = from[i * from_stride + j] for i <
// rows, j < columns. Strides are in elements; the two do not overlap.
struct TransposeBlock {
  const void* from;
  int64_t from_stride;
  void* to;
  int64_t to_stride;
  int64_t rows, columns;
};

// Blocks up to about this size in both directions stay in the first-level cache.
inline constexpr int64_t kTransposeBlock = 128;

struct TransposeBlocks {
  // Of elements of 1, 2, 4 and 8 bytes. With `around_cache` whole cache lines of the result go to
  // memory without being read first: for results that the caches do not hold anyway.
  void (*run[4])(const TransposeBlock& block, bool around_cache);
};

}  // namespace millrace
