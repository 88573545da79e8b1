#pragma once

#include <algorithm>
#include <cstdint>

#include "millrace/kernel/kernel.h"

namespace millrace {

// to[b, j, i] = from[b, i, j], with i < rows, j < columns, converted: images between NCHW (rows are
// channels) and NHWC (rows are pixels).
template <class From, class To>
void transpose_images(const KernelContext& ctx, int64_t batch, int64_t rows, int64_t columns,
                      const From* from, To* to) {
  constexpr int64_t kBlock = 32;
  const int64_t blocks = (columns + kBlock - 1) / kBlock;
  ctx.parallel_for(
      batch * blocks, static_cast<double>(rows * kBlock), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const From* in = from + t / blocks * rows * columns;
          To* out = to + t / blocks * rows * columns;
          const int64_t first = t % blocks * kBlock, last = std::min(first + kBlock, columns);
          for (int64_t block = 0; block < rows; block += kBlock) {
            for (int64_t j = first; j < last; ++j) {
              for (int64_t i = block; i < std::min(block + kBlock, rows); ++i) {
                out[j * rows + i] = static_cast<To>(in[i * columns + j]);
              }
            }
          }
        }
      });
}

}  // namespace millrace
