#include "millrace/ops/reduce/segments.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "millrace/ops/accumulate.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/reduce/segment_loops.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

Result<PartialShape> rest_of_segments(const PartialShape& data, const PartialShape& ids) {
  if (!data.rank_known() || !ids.rank_known()) return PartialShape();
  PartialShape rest = PartialShape::scalar();
  bool agree = data.rank() >= ids.rank();
  for (int i = 0; agree && i < data.rank(); ++i) {
    if (i >= ids.rank()) {
      rest.add_dim(data.dim(i));
    } else {
      agree = !data.dim_known(i) || !ids.dim_known(i) || data.dim(i) == ids.dim(i);
    }
  }
  if (agree) return rest;
  return invalid_argument("the shape of data must start with that of segment_ids, got ", data,
                          " and ", ids);
}

Status set_segments(ShapeContext& c, int64_t segments, const PartialShape& rest) {
  if (!rest.rank_known()) return ok_status();
  std::vector<int64_t> dims = {segments};
  dims.insert(dims.end(), rest.dims().begin(), rest.dims().end());
  MR_TRY_ASSIGN(PartialShape shape, PartialShape::make(dims));
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status sorted_segments_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape data, c.with_rank_at_least(0, 1));
  MR_TRY(c.with_rank(1, 1).status());
  MR_TRY_ASSIGN(const PartialShape rest, rest_of_segments(data, PartialShape::of_rank(1)));
  return set_segments(c, PartialShape::kUnknownDim, rest);
}

Status unsorted_segments_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(2, 0).status());
  MR_TRY_ASSIGN(const PartialShape rest, rest_of_segments(c.input(0), c.input(1)));
  const std::optional<int64_t> segments = c.input_scalar(2);
  if (segments && *segments < 0) {
    return invalid_argument("num_segments must not be negative, got ", *segments);
  }
  return set_segments(c, segments.value_or(PartialShape::kUnknownDim), rest);
}

Result<int64_t> count_sorted_segments(std::span<const int64_t> ids) {
  if (ids.empty()) return 0;
  if (ids.back() < 0) return invalid_argument("segment ids must be >= 0, got ", ids.back());
  if (ids.back() == std::numeric_limits<int64_t>::max()) {
    return invalid_argument("segment id ", ids.back(), " is too large");
  }
  const int64_t segments = ids.back() + 1;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + 1 < ids.size() && ids[i + 1] < ids[i]) {
      return invalid_argument("segment ids are not increasing: ", ids[i], " at position ", i,
                              " is followed by ", ids[i + 1]);
    }
    if (ids[i] < 0 || ids[i] >= segments) {
      return invalid_argument("Segment id ", ids[i], " out of range [0, ", segments,
                              "), possibly because 'segment_ids' input is not sorted.");
    }
  }
  return segments;
}

Status check_ids_below(const Indices& ids, int64_t segments) {
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < segments) continue;
    return invalid_argument("segment_ids", position_text(ids.shape(), i), " = ", ids[i],
                            " is out of range [0, ", segments, ")");
  }
  return ok_status();
}

Result<int64_t> num_segments_input(const KernelContext& ctx, int i) {
  if (ctx.input(i).rank() != 0) {
    return invalid_argument("num_segments should be a scalar, got shape ", ctx.input(i).shape());
  }
  MR_TRY_ASSIGN(const int64_t segments, ctx.int_scalar_input(i));
  if (segments < 0) return invalid_argument("num_segments must not be negative, got ", segments);
  return segments;
}

Result<Shape> segments_shape(int64_t segments, const Shape& data, int ids_rank) {
  std::vector<int64_t> dims = {segments};
  dims.insert(dims.end(), data.dims().begin() + ids_rank, data.dims().end());
  return Shape::make(dims);
}

Result<SortedSegments> SortedSegments::make(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 1, 1));
  const Shape& data = ctx.input(0).shape();
  if (data.rank() == 0) return invalid_argument("data must have rank 1 or more, got a scalar");
  if (data.dim(0) != ctx.input(1).dim(0)) {
    return invalid_argument("segment_ids should be the same size as dimension 0 of input, got ",
                            ctx.input(1).dim(0), " and ", data.dim(0));
  }
  SortedSegments out;
  MR_TRY_ASSIGN(out.ids, Indices::read(ctx, ctx.input(1)));
  MR_TRY_ASSIGN(out.segments, count_sorted_segments(out.ids.span()));
  return out;
}

Result<UnsortedSegments> UnsortedSegments::make(KernelContext& ctx) {
  MR_TRY(rest_of_segments(ctx.input(0).shape(), ctx.input(1).shape()).status());
  UnsortedSegments out;
  MR_TRY_ASSIGN(out.segments, num_segments_input(ctx, 2));
  MR_TRY_ASSIGN(out.ids, Indices::read(ctx, ctx.input(1)));
  MR_TRY(check_ids_below(out.ids, out.segments));
  return out;
}

namespace {

template <class S>
S scaled(S x, [[maybe_unused]] double weight) {
  if constexpr (std::is_integral_v<S>) {
    return x;
  } else if constexpr (std::is_floating_point_v<S>) {
    return x * static_cast<S>(weight);
  } else {
    return x * S(static_cast<typename S::value_type>(weight));
  }
}

template <class S>
S divided(S x, double divisor) {
  if constexpr (std::is_integral_v<S>) {
    // A number of rows: at most 2^53.
    using Wide = std::conditional_t<std::is_signed_v<S>, int64_t, uint64_t>;
    return static_cast<S>(static_cast<Wide>(x) / static_cast<Wide>(divisor));
  } else if constexpr (std::is_floating_point_v<S>) {
    return x / static_cast<S>(divisor);
  } else {
    return x / S(static_cast<typename S::value_type>(divisor));
  }
}

// Columns that one thread sums; each sum adds its rows from first to last.
constexpr int64_t kColumns = 64;

template <class T>
void sum_columns(const T* x, const RowSums& sums, int64_t cols, int64_t rows, int64_t first,
                 int64_t last, ComputeType<T>* y) {
  using S = ComputeType<T>;
  if (first == 0 && last == cols) {
    std::fill_n(y, rows * cols, S(0));
  } else {
    for (int64_t s = 0; s < rows; ++s) std::fill(y + s * cols + first, y + s * cols + last, S(0));
  }
  for (size_t i = 0; i < sums.to.size(); ++i) {
    if (sums.to[i] < 0) continue;
    const int64_t row = sums.from == nullptr ? static_cast<int64_t>(i) : sums.from[i];
    const T* from = x + row * cols;
    S* to = y + sums.to[i] * cols;
    if (sums.weights == nullptr) {
      for (int64_t k = first; k < last; ++k) to[k] = wrapping_add(to[k], static_cast<S>(from[k]));
    } else {
      const double weight = sums.weights[row];
      for (int64_t k = first; k < last; ++k) {
        to[k] = wrapping_add(to[k], scaled(static_cast<S>(from[k]), weight));
      }
    }
  }
  for (int64_t s = 0; sums.divisors != nullptr && s < rows; ++s) {
    if (sums.divisors[s] == 1) continue;
    for (int64_t k = first; k < last; ++k) {
      y[s * cols + k] = divided(y[s * cols + k], sums.divisors[s]);
    }
  }
}

// The rows of each segment, in order.
class SegmentLists {
 public:
  // `sorted`: the rows of `sums` are in the order of their segments.
  SegmentLists(const RowSums& sums, int64_t segments, bool sorted)
      : starts_(static_cast<size_t>(segments) + 1) {
    // starts_[s + 1] counts those of segment s, then where they start, then where they end.
    const auto named = [&](size_t i) { return static_cast<size_t>(sums.to[i] + 1); };
    size_t first = 0;
    while (sorted && first < sums.to.size() && sums.to[first] < 0) ++first;
    for (size_t i = first; i < sums.to.size(); ++i) {
      if (sums.to[i] >= 0) ++starts_[named(i)];
    }
    for (size_t s = 1; s < starts_.size(); ++s) longest_ = std::max(longest_, starts_[s]);
    if (sorted && sums.from == nullptr) {
      starts_[0] = static_cast<int64_t>(first);
      for (size_t s = 1; s < starts_.size(); ++s) starts_[s] += starts_[s - 1];
      return;
    }
    int64_t start = 0;
    for (size_t s = 1; s < starts_.size(); ++s) start += std::exchange(starts_[s], start);
    rows_.resize(static_cast<size_t>(start));
    for (size_t i = first; i < sums.to.size(); ++i) {
      if (sums.to[i] < 0) continue;
      const auto at = static_cast<size_t>(starts_[named(i)]++);
      rows_[at] = sums.from == nullptr ? static_cast<int64_t>(i) : sums.from[i];
    }
  }

  int64_t count() const { return starts_.back() - starts_.front(); }
  int64_t longest() const { return longest_; }
  SegmentRows rows() const { return {starts_.data(), rows_.empty() ? nullptr : rows_.data()}; }

 private:
  std::vector<int64_t> starts_, rows_;
  int64_t longest_ = 0;
};

// Types that segment_loops.h has.
template <class T>
constexpr bool kHasLoops = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                           std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>;

// Rows of sums with the rows that make them: each is written once, by one thread. Threads also
// share the columns where one row of sums has most of the work.
template <class T>
void sum_lists(KernelContext& ctx, const T* x, const RowSums& sums, bool sorted, int64_t cols,
               int64_t rows, T* y) {
  const SegmentLists lists(sums, rows, sorted);
  const bool uneven = lists.longest() * 8 > lists.count();
  const int64_t width = uneven ? std::min(cols, kColumns) : cols;
  const int64_t chunks = (cols + width - 1) / width;
  const double share = static_cast<double>(lists.count()) / static_cast<double>(rows) + 1;
  const double cost = 4 + share * static_cast<double>(width) * 0.1;
  ctx.parallel_for(rows * chunks, cost, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end;) {
      const int64_t chunk = unit / rows, first = unit % rows;
      const int64_t last = std::min(rows, first + end - unit), column = chunk * width;
      const int64_t count = std::min(width, cols - column);
      isa_table<SegmentLoops<T>>().sum(lists.rows(), x + column, cols, count, first, last,
                                       y + column);
      for (int64_t s = first; sums.divisors != nullptr && s < last; ++s) {
        if (sums.divisors[s] == 1) continue;
        T* const row = y + s * cols + column;
        for (int64_t k = 0; k < count; ++k) row[k] = divided(row[k], sums.divisors[s]);
      }
      unit += last - first;
    }
  });
}

// Rows of at least so many bytes are brought into the order of their segments first.
constexpr int64_t kLongRow = 256;

template <class T>
void sum_typed(KernelContext& ctx, const T* x, const RowSums& sums, int64_t cols, int64_t rows,
               ComputeType<T>* y) {
  if constexpr (kHasLoops<T>) {
    const bool sorted = std::is_sorted(sums.to.begin(), sums.to.end());
    const bool lists = sorted || cols * static_cast<int64_t>(sizeof(T)) >= kLongRow;
    if (lists && sums.weights == nullptr) return sum_lists(ctx, x, sums, sorted, cols, rows, y);
  }
  const int64_t chunks = (cols + kColumns - 1) / kColumns;
  const double cost =
      static_cast<double>(sums.to.size()) * (static_cast<double>(kColumns) * 0.3 + 2);
  ctx.parallel_for(chunks, cost, [&](int64_t begin, int64_t end) {
    sum_columns(x, sums, cols, rows, begin * kColumns, std::min(cols, end * kColumns), y);
  });
}

}  // namespace

Status sum_rows(KernelContext& ctx, const Tensor& x, const RowSums& sums, int64_t cols, Tensor& y) {
  if (y.num_elements() == 0) return ok_status();
  const int64_t rows = y.num_elements() / cols;
  return dispatch<NumberTypes>(x.dtype(), [&]<class T>() -> Status {
    using S = ComputeType<T>;
    const T* from = x.data<T>().data();
    T* to = y.mutable_data<T>().data();
    if constexpr (std::is_same_v<S, T>) {
      sum_typed<T>(ctx, from, sums, cols, rows, to);
    } else {
      MR_TRY_ASSIGN(Tensor wide, ctx.allocate_temp(dtype_of<S>, y.shape()));
      S* sum = wide.mutable_data<S>().data();
      sum_typed<T>(ctx, from, sums, cols, rows, sum);
      for (int64_t i = 0; i < y.num_elements(); ++i) to[i] = static_cast<T>(sum[i]);
    }
    return ok_status();
  });
}

std::vector<double> segment_sizes(std::span<const int64_t> ids, int64_t segments) {
  std::vector<double> sizes(static_cast<size_t>(segments));
  for (int64_t id : ids) {
    if (id >= 0) ++sizes[static_cast<size_t>(id)];
  }
  for (double& size : sizes) size = std::max(size, 1.0);
  return sizes;
}

}  // namespace millrace
