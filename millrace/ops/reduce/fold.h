#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// How two elements become one.
enum class FoldOp : uint8_t { kSum, kProd, kMax, kMin };

// The most elements that FoldLoops::rows folds at once.
inline constexpr int64_t kFoldBlock = 2048;

// The loops that reductions are made of, over elements of A: float, double or int64_t, and for
// products also the complex types. The order in which elements meet depends on the sizes alone, not
// on the instruction set, so results have the same bits on all of them. Integers wrap; NaN wins a
// maximum and a minimum.
template <class A>
struct FoldLoops {
  // out[i] = all elements of row i folded; rows of n elements follow each other, 1 <= n <=
  // kFoldBlock.
  void (*rows)(const A* x, int64_t rows, int64_t n, A* out);
  // acc[k] = acc[k] folded with column k of `rows` rows that lie `stride` apart.
  void (*columns)(A* acc, const A* x, int64_t rows, int64_t stride, int64_t cols);
};

// The loops for this machine.
template <class A>
const FoldLoops<A>& fold_loops(FoldOp op);

// What fold_isa.cc has for float, double and int64_t, by FoldOp.
template <class A>
struct FoldTable {
  FoldLoops<A> loops[4];
};

}  // namespace millrace
