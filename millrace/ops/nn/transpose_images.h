#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "millrace/kernel/kernel.h"
#include "millrace/ops/array/transpose_blocks.h"

namespace millrace {

// to[b, j, i] = from[b, i, j], with i < rows, j < columns, converted: images between NCHW (rows are
// channels) and NHWC (rows are pixels).
template <class From, class To>
void transpose_images(const KernelContext& ctx, int64_t batch, int64_t rows, int64_t columns,
                      const From* from, To* to) {
  // What is converted goes an element after the other.
  constexpr bool kMoves = std::is_same_v<From, To>;
  constexpr int64_t kBlock = kMoves ? kTransposeBlock : 32;
  const int64_t blocks = (columns + kBlock - 1) / kBlock;
  const double cost = static_cast<double>(rows * std::min(kBlock, columns)) * (kMoves ? 0.3 : 1);
  ctx.parallel_for(batch * blocks, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const From* in = from + t / blocks * rows * columns;
      To* out = to + t / blocks * rows * columns;
      const int64_t first = t % blocks * kBlock, last = std::min(first + kBlock, columns);
      for (int64_t block = 0; block < rows; block += kBlock) {
        const int64_t end_of_block = std::min(block + kBlock, rows);
        if constexpr (kMoves) {
          constexpr int kSize = std::bit_width(sizeof(From)) - 1;
          isa_table<TransposeBlocks>().run[kSize](
              {in + block * columns + first, columns, out + first * rows + block, rows,
               end_of_block - block, last - first},
              /*around_cache=*/false);
        } else {
          for (int64_t j = first; j < last; ++j) {
            for (int64_t i = block; i < end_of_block; ++i) {
              out[j * rows + i] = static_cast<To>(in[i * columns + j]);
            }
          }
        }
      }
    }
  });
}

}  // namespace millrace
