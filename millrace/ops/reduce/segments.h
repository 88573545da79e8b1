#pragma once

#include <cstdint>
#include <span>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/indices.h"

// What the ops on segments share: rows of a tensor that belong together because they have one id.

namespace millrace {

// Shape rules.

// The dimensions of `data` after those of `ids`, with which it must begin.
Result<PartialShape> rest_of_segments(const PartialShape& data, const PartialShape& ids);
// Output 0 has `segments` rows (-1: any number) of shape `rest`.
Status set_segments(ShapeContext& c, int64_t segments, const PartialShape& rest);
// For data and a vector of ids that do not decrease. Their sizes are compared when the op runs.
Status sorted_segments_shape(ShapeContext& c);
// For data, ids and the number of segments.
Status unsorted_segments_shape(ShapeContext& c);

// Kernels.

// One more than the last id; INVALID_ARGUMENT unless ids are sorted and not negative.
Result<int64_t> count_sorted_segments(std::span<const int64_t> ids);
// INVALID_ARGUMENT naming the first id that is not below `segments`. Negative ones are fine.
Status check_ids_below(const Indices& ids, int64_t segments);
// Input i as the number of segments; INVALID_ARGUMENT when negative.
Result<int64_t> num_segments_input(const KernelContext& ctx, int i);
// [segments, dimensions of data after the first `ids_rank`].
Result<Shape> segments_shape(int64_t segments, const Shape& data, int ids_rank);

// The sorted ids of SegmentX and how many segments they make.
struct SortedSegments {
  Indices ids;
  int64_t segments = 0;
  static Result<SortedSegments> make(KernelContext& ctx);
};
// The same of UnsortedSegmentX.
struct UnsortedSegments {
  Indices ids;
  int64_t segments = 0;
  static Result<UnsortedSegments> make(KernelContext& ctx);
};

// y[to[i]] += weights[from[i]] * x[from[i]], row by row in order; then row k of y is divided by
// divisors[k]. Half and bfloat16 are summed as float; integers wrap.
struct RowSums {
  std::span<const int64_t> to;       // below the rows of y; negative: left out
  const int64_t* from = nullptr;     // rows of x; null: row i
  const double* weights = nullptr;   // null: all one. Not for integers
  const double* divisors = nullptr;  // null: all one
};
// Sums rows of `cols` elements of x into y, of the same type, which it overwrites.
Status sum_rows(KernelContext& ctx, const Tensor& x, const RowSums& sums, int64_t cols, Tensor& y);

// How often each segment was named, 1 for those that never were.
std::vector<double> segment_sizes(std::span<const int64_t> ids, int64_t segments);

}  // namespace millrace
