#pragma once

#include <algorithm>

#include "millrace/graph/size_rules.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/random/philox.h"

namespace millrace {

// Blocks of its stream that an op lays aside for every element of its output, whether it needs them
// or not.
inline constexpr uint64_t kBlocksPerElement = 256;

// The shape rule of ops whose input 0 is the shape of their output.
inline Status random_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 1).status());
  MR_TRY_ASSIGN(PartialShape shape, sizes_input(c, 0));
  c.set_output(0, std::move(shape));
  return ok_status();
}

// Fills out[0, n): block number b of the stream makes the elements from b * per_block on, by way of
// convert(words, out), which is given 4 words and makes `per_block` elements.
template <int per_block, class T, class Convert>
void fill_from_blocks(const KernelContext& ctx, const Philox& stream, double cost_ns_per_block,
                      T* out, int64_t n, Convert convert) {
  constexpr int64_t kBlocks = 64;
  const int64_t blocks = n / per_block + (n % per_block != 0 ? 1 : 0);
  ctx.parallel_for(blocks, cost_ns_per_block, [&](int64_t begin, int64_t end) {
    Philox part = stream;
    part.skip(static_cast<uint64_t>(begin));
    uint32_t words[4 * kBlocks];
    for (int64_t b = begin; b < end; b += kBlocks) {
      const int64_t count = std::min(kBlocks, end - b);
      part.fill(words, count);
      const int64_t whole = std::min(count, n / per_block - b);
      for (int64_t k = 0; k < whole; ++k) convert(words + 4 * k, out + (b + k) * per_block);
      if (whole < count) {
        T last[per_block];
        convert(words + 4 * whole, last);
        std::copy_n(last, n % per_block, out + (b + whole) * per_block);
      }
    }
  });
}

}  // namespace millrace
