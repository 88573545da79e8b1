#include "millrace/ops/reduce/segment_loops.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

// The rows [begin, end) of a segment, one after the other.
template <class T>
struct Rows {
  const T* x;
  int64_t stride;
  const int64_t* numbers;
  int64_t begin, end;

  MR_VECTOR_FN const T* row(int64_t i) const {
    return x + (numbers == nullptr ? i : numbers[i]) * stride;
  }
  // Rows may lie anywhere: each is asked for well before its turn, up to row `total`, which may be
  // of a later segment.
  MR_VECTOR_FN void prefetch(int64_t i, int64_t total, int64_t column, int64_t bytes) const {
    constexpr int64_t kAhead = 8, kLine = 64;
    if (numbers == nullptr || i + kAhead >= total) return;
    const char* next = reinterpret_cast<const char*>(row(i + kAhead) + column);
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(next + at);
  }
};

// `count` vectors of y = the sums of the rows' vectors, from a column on.
template <int count, class T>
MR_VECTOR_FN void sum_vectors(const Rows<T>& rows, int64_t column, int64_t total, T* y) {
  constexpr int64_t kStep = vec::kLanes<T>;
  vec::Vec<T> sums[count] = {};
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    rows.prefetch(i, total, column, count * vec::kVectorBytes);
    const T* const row = rows.row(i) + column;
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k) sums[k] = vec::add(sums[k], vec::load(row + k * kStep));
  }
#pragma GCC unroll 8
  for (int k = 0; k < count; ++k) vec::store(y + column + k * kStep, sums[k]);
}

template <class T>
MR_VECTOR_FN void sum_segment(const Rows<T>& rows, int64_t cols, int64_t total, T* y) {
  constexpr int64_t kStep = vec::kLanes<T>;
  int64_t k = 0;
  for (; k + 8 * kStep <= cols; k += 8 * kStep) sum_vectors<8>(rows, k, total, y);
  for (; k + 2 * kStep <= cols; k += 2 * kStep) sum_vectors<2>(rows, k, total, y);
  for (; k + kStep <= cols; k += kStep) sum_vectors<1>(rows, k, total, y);
  for (; k < cols; ++k) {
    T sum = 0;
    for (int64_t i = rows.begin; i < rows.end; ++i) sum = vec::add(sum, rows.row(i)[k]);
    y[k] = sum;
  }
}

template <class T>
void sum(const SegmentRows& segments, const T* x, int64_t stride, int64_t cols, int64_t first,
         int64_t last, T* y) {
  const int64_t* const starts = segments.starts;
  for (int64_t s = first; s < last; ++s) {
    const Rows<T> rows = {x, stride, segments.rows, starts[s], starts[s + 1]};
    sum_segment(rows, cols, starts[last], y + s * stride);
  }
}

template <class T>
constexpr SegmentLoops<T> kSegmentLoops = {sum<T>};

}  // namespace

#define MR_DEFINE_TABLE(T)                                           \
  template <>                                                        \
  const SegmentLoops<T>& isa_table<SegmentLoops<T>, Isa::MR_ISA>() { \
    return kSegmentLoops<T>;                                         \
  }
MR_DEFINE_TABLE(float)
MR_DEFINE_TABLE(double)
MR_DEFINE_TABLE(int32_t)
MR_DEFINE_TABLE(int64_t)
#undef MR_DEFINE_TABLE

}  // namespace millrace
