// SegmentSum, SegmentMean and UnsortedSegmentSum: rows summed by the segment that an id puts them
// in.

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/reduce/reduction_gradients.h"
#include "millrace/ops/reduce/segment_gradients.h"
#include "millrace/ops/reduce/segments.h"

namespace millrace {
namespace {

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

Status segment_sum_grad(GradientContext& g) {
  g.set(0, call("Gather", {g.gradient(), g.input(1)}));
  return ok_status();
}

// A segment without rows gives its gradient to nobody; it is not to be divided by zero either.
Status segment_mean_grad(GradientContext& g) {
  const Expr x = g.input(0), ids = g.input(1), dy = widened(g.gradient());
  const Expr sizes = call("SegmentSum", {ones_like(ids), ids});
  const Expr divisors = cast(call("Maximum", {sizes, constant_like(sizes, 1)}), dy.dtype());
  const Expr share = cast(dy / with_trailing_ones(divisors, x), x.dtype());
  g.set(0, call("Gather", {share, ids}));
  return ok_status();
}

Status unsorted_segment_sum_grad(GradientContext& g) {
  g.set(0, gather_segments(g.gradient(), g.input(1)));
  return ok_status();
}

Status segment_sum_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(const SortedSegments s, SortedSegments::make(ctx));
  MR_TRY_ASSIGN(const Shape shape, segments_shape(s.segments, ctx.input(0).shape(), 1));
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
  const int64_t cols = shape.without_first().num_elements();
  return sum_rows(ctx, ctx.input(0), {.to = s.ids.span()}, cols, *y);
}

Status segment_mean_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(const SortedSegments s, SortedSegments::make(ctx));
  MR_TRY_ASSIGN(const Shape shape, segments_shape(s.segments, ctx.input(0).shape(), 1));
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
  if (shape.num_elements() == 0) return ok_status();
  const std::vector<double> sizes = segment_sizes(s.ids.span(), s.segments);
  const int64_t cols = shape.without_first().num_elements();
  return sum_rows(ctx, ctx.input(0), {.to = s.ids.span(), .divisors = sizes.data()}, cols, *y);
}

Status unsorted_segment_sum_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(const UnsortedSegments s, UnsortedSegments::make(ctx));
  MR_TRY_ASSIGN(const Shape shape,
                segments_shape(s.segments, ctx.input(0).shape(), ctx.input(1).rank()));
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
  const int64_t cols = shape.without_first().num_elements();
  return sum_rows(ctx, ctx.input(0), {.to = s.ids.span()}, cols, *y);
}

}  // namespace

void register_segment_sums(Registry& registry) {
  registry.add({.name = "SegmentSum",
                .doc = "Sums of neighbouring rows that have one id; ids do not decrease.",
                .inputs = {{"data", "T"}, {"segment_ids", "Tindices"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kNumberTypes}, {"Tindices", kIndexTypes}},
                .traits = {.cost = 0.5F},
                .shape = sorted_segments_shape,
                .gradient = segment_sum_grad});
  registry.add({.name = "SegmentMean",
                .doc = "Means of neighbouring rows that have one id; ids do not decrease.",
                .inputs = {{"data", "T"}, {"segment_ids", "Tindices"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kNumberTypes}, {"Tindices", kIndexTypes}},
                .traits = {.cost = 0.5F},
                .shape = sorted_segments_shape,
                .gradient = segment_mean_grad});
  registry.add({.name = "UnsortedSegmentSum",
                .doc = "Sums of the rows that have one id. Rows with negative ids are left out.",
                .inputs = {{"data", "T"},
                           {"segment_ids", "Tindices", "Of a shape that begins data's."},
                           {"num_segments", "host(Tnumsegments)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kNumberTypes},
                          {"Tindices", kIndexTypes},
                          {"Tnumsegments", kIndexTypes, DType::kInt32}},
                .traits = {.cost = 0.5F},
                .shape = unsorted_segments_shape,
                .value = unsorted_segment_value,
                .gradient = unsorted_segment_sum_grad});
  const auto kernel = [&](const char* op, KernelFunction function) {
    registry.kernel({.op = op, .constraints = {{"T", kNumbers}}, .function = function});
  };
  kernel("SegmentSum", segment_sum_cpu);
  kernel("SegmentMean", segment_mean_cpu);
  kernel("UnsortedSegmentSum", unsorted_segment_sum_cpu);
}

}  // namespace millrace
