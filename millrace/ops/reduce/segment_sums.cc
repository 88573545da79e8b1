// SegmentSum and UnsortedSegmentSum: rows summed by the segment that an id puts them in.

#include <algorithm>
#include <limits>
#include <span>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/reduce/register.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The dimensions of `data` after those of `ids`, which must agree.
Result<PartialShape> rest_of(const PartialShape& data, const PartialShape& ids) {
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

Status segment_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape ids, c.with_rank(1, 1));
  MR_TRY_ASSIGN(const PartialShape rest, rest_of(c.input(0), ids));
  return set_segments(c, PartialShape::kUnknownDim, rest);
}

Status unsorted_segment_shape(ShapeContext& c) {
  if (c.input(2).num_elements() >= 0 && c.input(2).num_elements() != 1) {
    return invalid_argument("num_segments must be a scalar, got shape ", c.input(2));
  }
  MR_TRY_ASSIGN(const PartialShape rest, rest_of(c.input(0), c.input(1)));
  const std::optional<int64_t> segments = c.input_scalar(2);
  if (segments && *segments < 0) {
    return invalid_argument("num_segments must not be negative, got ", *segments);
  }
  return set_segments(c, segments.value_or(PartialShape::kUnknownDim), rest);
}

// Counts of small integers: which dimensions an op reduced, for example.
void unsorted_segment_value(ValueContext& c) {
  const PartialValue *data = c.input(0), *ids = c.input(1), *segments = c.input(2);
  const Result<DType> dtype = c.attr<DType>("T");
  if (data == nullptr || ids == nullptr || segments == nullptr || !dtype.ok()) return;
  if (!data->fully_known() || !ids->fully_known() || !segments->fully_known()) return;
  if (data->elements.size() != ids->elements.size() || data->is_scalar != ids->is_scalar) return;
  const int64_t n = *segments->elements[0];
  if (n < 0 || n > kMaxValueElements) return;
  std::vector<uint64_t> sums(static_cast<size_t>(n));
  for (size_t i = 0; i < ids->elements.size(); ++i) {
    const int64_t id = *ids->elements[i];
    if (id >= n) return;
    if (id >= 0) sums[static_cast<size_t>(id)] += static_cast<uint64_t>(*data->elements[i]);
  }
  PartialValue value;
  for (uint64_t sum : sums) {
    value.elements.push_back(*dtype == DType::kInt32 ? static_cast<int32_t>(sum)
                                                     : static_cast<int64_t>(sum));
  }
  c.set_output(0, std::move(value));
}

Status segment_grad(GradientContext& g) {
  g.set(0, call("Gather", {g.gradient(), g.input(1)}));
  return ok_status();
}

// Rows with negative ids went nowhere: their gradient is zero.
Status unsorted_segment_grad(GradientContext& g) {
  const Expr ids = g.input(1), zero = constant_like(ids, 0);
  const Expr rows = call("Gather", {g.gradient(), call("Maximum", {ids, zero})});
  OpBuilder& builder = g.builder();
  const Expr more = reshape(rank(rows) - rank(ids), int32_vector(builder, {1}));
  const Expr ones = fill(more, int32_scalar(builder, 1));
  const Expr used = reshape(greater_equal(ids, zero), concat({shape_of(ids), ones}, 0));
  g.set(0, call("SelectV2", {used, rows, zeros_like(rows)}));
  return ok_status();
}

// Half and BFloat16 are summed as float; integers wrap.
template <class T>
struct SumOf {
  using Type = T;
};
template <>
struct SumOf<Half> {
  using Type = float;
};
template <>
struct SumOf<BFloat16> {
  using Type = float;
};

template <class T>
T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

// Columns that one thread sums; each sum adds its rows from first to last.
constexpr int64_t kColumns = 64;

// The position of the first id that is not below `segments`; -1.
template <class I>
int64_t first_bad(const I* ids, int64_t count, int64_t segments) {
  for (int64_t i = 0; i < count; ++i) {
    if (static_cast<int64_t>(ids[i]) >= segments) return i;
  }
  return -1;
}

// Adds row i of x to row ids[i] of `sums`; negative ids are skipped, the others below `segments`.
template <class T, class I>
void add_rows(KernelContext& ctx, const T* x, const I* ids, int64_t count, int64_t segments,
              int64_t cols, typename SumOf<T>::Type* sums) {
  using S = typename SumOf<T>::Type;
  const int64_t chunks = (cols + kColumns - 1) / kColumns;
  const double cost = static_cast<double>(count) * (static_cast<double>(kColumns) * 0.3 + 2);
  ctx.parallel_for(chunks, cost, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kColumns, last = std::min(cols, end * kColumns);
    for (int64_t s = 0; s < segments; ++s) {
      std::fill(sums + s * cols + first, sums + s * cols + last, S(0));
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t id = static_cast<int64_t>(ids[i]);
      // Read again: what was checked may lie in a variable that somebody writes to.
      if (id < 0 || id >= segments) continue;
      const T* from = x + i * cols;
      S* to = sums + id * cols;
      for (int64_t k = first; k < last; ++k) to[k] = wrapping_add(to[k], static_cast<S>(from[k]));
    }
  });
}

template <class T, class I>
Status sum_segments(KernelContext& ctx, int64_t segments) {
  using S = typename SumOf<T>::Type;
  const Tensor& x = ctx.input(0);
  const Tensor& ids = ctx.input(1);
  const int64_t count = ids.num_elements();
  const I* id = ids.data<I>().data();
  if (const int64_t bad = first_bad(id, count, segments); bad >= 0) {
    return invalid_argument("segment_ids[", bad, "] = ", static_cast<int64_t>(id[bad]),
                            " is out of range [0, ", segments, ")");
  }
  std::vector<int64_t> dims = {segments};
  dims.insert(dims.end(), x.shape().dims().begin() + ids.rank(), x.shape().dims().end());
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
  if (shape.num_elements() == 0) return ok_status();
  const int64_t cols = shape.num_elements() / segments;
  const T* data = x.data<T>().data();
  T* out = y->mutable_data<T>().data();
  if constexpr (std::is_same_v<S, T>) {
    add_rows<T, I>(ctx, data, id, count, segments, cols, out);
  } else {
    MR_TRY_ASSIGN(Tensor sums, ctx.allocate_temp(dtype_of<S>, shape));
    S* sum = sums.mutable_data<S>().data();
    add_rows<T, I>(ctx, data, id, count, segments, cols, sum);
    for (int64_t i = 0; i < shape.num_elements(); ++i) out[i] = static_cast<T>(sum[i]);
  }
  return ok_status();
}

Status check_prefix(const KernelContext& ctx) {
  return rest_of(PartialShape(ctx.input(0).shape()), PartialShape(ctx.input(1).shape())).status();
}

Status dispatch_sum(KernelContext& ctx, int64_t segments) {
  const bool wide = ctx.input(1).dtype() == DType::kInt64;
  return dispatch<NumberTypes>(ctx.input(0).dtype(), [&]<class T>() {
    return wide ? sum_segments<T, int64_t>(ctx, segments) : sum_segments<T, int32_t>(ctx, segments);
  });
}

Status unsorted_segment_cpu(KernelContext& ctx) {
  MR_TRY(check_prefix(ctx));
  MR_TRY_ASSIGN(const int64_t segments, ctx.int_scalar_input(2));
  if (segments < 0) {
    return invalid_argument("num_segments must not be negative, got ", segments);
  }
  return dispatch_sum(ctx, segments);
}

template <class I>
Result<int64_t> check_sorted(std::span<const I> ids) {
  int64_t previous = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t id = static_cast<int64_t>(ids[i]);
    if (id < previous) {
      return i == 0 ? invalid_argument("segment_ids must not be negative, got ", id)
                    : invalid_argument("segment_ids must not decrease, got ", previous,
                                       " followed by ", id, " at position ", i);
    }
    previous = id;
  }
  if (ids.empty()) return 0;
  if (previous == std::numeric_limits<int64_t>::max()) {
    return invalid_argument("segment id ", previous, " is too large");
  }
  return previous + 1;
}

Status segment_cpu(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 1, 1));
  MR_TRY(check_prefix(ctx));
  const Tensor& ids = ctx.input(1);
  MR_TRY_ASSIGN(const int64_t segments, ids.dtype() == DType::kInt64
                                            ? check_sorted(ids.data<int64_t>())
                                            : check_sorted(ids.data<int32_t>()));
  return dispatch_sum(ctx, segments);
}

}  // namespace

void register_segment_sums(Registry& registry) {
  registry.add({.name = "SegmentSum",
                .doc = "Sums of neighbouring rows that have one id; ids do not decrease.",
                .inputs = {{"data", "T"}, {"segment_ids", "Tindices"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kNumberTypes}, {"Tindices", kIndexTypes}},
                .traits = {.cost = 0.5F},
                .shape = segment_shape,
                .gradient = segment_grad});
  registry.add({.name = "UnsortedSegmentSum",
                .doc = "Sums of the rows that have one id. Rows with negative ids are left out.",
                .inputs = {{"data", "T"},
                           {"segment_ids", "Tindices", "Of a shape that begins data's."},
                           {"num_segments", "Tnumsegments"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kNumberTypes},
                          {"Tindices", kIndexTypes},
                          {"Tnumsegments", kIndexTypes, DType::kInt32}},
                .traits = {.cost = 0.5F},
                .shape = unsorted_segment_shape,
                .value = unsorted_segment_value,
                .gradient = unsorted_segment_grad});
  registry.kernel({.op = "SegmentSum", .constraints = {{"T", kNumbers}}, .function = segment_cpu});
  registry.kernel({.op = "UnsortedSegmentSum",
                   .constraints = {{"T", kNumbers}},
                   .function = unsorted_segment_cpu});
}

}  // namespace millrace
