#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "millrace/kernel/kernel.h"
#include "millrace/ops/element.h"
#include "millrace/ops/math/elementwise.h"

// Rows moved by their numbers: what gathers, shuffles, partitions and scatters have in common. A
// row is `run` elements next to each other; both tensors have one dtype and live in host memory.

namespace millrace {

// Asks for a row, into the second-level cache: more lines can be under way than into the first.
template <class T>
void prefetch_row(const T* row, int64_t run) {
  constexpr int64_t kLine = 64, kMost = 16 * kLine;
  const int64_t bytes = std::min(run * static_cast<int64_t>(sizeof(T)), kMost);
  for (int64_t at = 0; at < bytes; at += kLine) {
    __builtin_prefetch(reinterpret_cast<const char*>(row) + at, 0, 2);
  }
}

// gather_rows for rows [begin, end). They may lie anywhere in memory: each is asked for well before
// its turn.
template <class T, class Source>
void gather_range(const T* from, const Source& source, int64_t begin, int64_t end, int64_t run,
                  T* to) {
  if (run == 1) {
    for (int64_t i = begin; i < end; ++i) to[i] = from[source(i)];
    return;
  }
  constexpr int64_t kAhead = 16;
  const T* asked[kAhead];
  const auto ask = [&](int64_t i) {
    const T* row = from + source(i) * run;
    prefetch_row(row, run);
    asked[i % kAhead] = row;
  };
  for (int64_t i = begin; i < std::min(begin + kAhead, end); ++i) ask(i);
  for (int64_t i = begin; i < end; ++i) {
    const T* row = asked[i % kAhead];
    if (i + kAhead < end) ask(i + kAhead);
    std::copy_n(row, run, to + i * run);
  }
}

// Row i of `to` becomes row source(i) of `from`, for i < count, on the context's threads.
template <class Source>
void gather_rows(const KernelContext& ctx, const Tensor& from, int64_t count, int64_t run,
                 const Source& source, Tensor& to) {
  if (count == 0 || run == 0) return;
  const double cost = copy_cost(to.dtype()) * static_cast<double>(run) + 4;
  with_element(to.dtype(), [&]<class T>() {
    const T* rows = static_cast<const T*>(from.raw());
    T* out = static_cast<T*>(to.mutable_raw());
    ctx.parallel_for(count, cost, [&](int64_t begin, int64_t end) {
      gather_range(rows, source, begin, end, run, out);
    });
  });
}

// Row rows[i] of `to` becomes function(itself, row i of `from`), one i after the other; where
// `function` is empty, row i of `from`. A `from` of one row serves all.
void scatter_rows(const KernelContext& ctx, const BinaryFunction& function, const Tensor& from,
                  std::span<const int64_t> rows, int64_t run, Tensor& to);

}  // namespace millrace
