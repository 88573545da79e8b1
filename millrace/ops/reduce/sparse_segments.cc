// SparseSegmentSum and its kin: sums, means and sums over the root of their number, of rows that
// indices pick. With r the scale (1, 1/n or 1/sqrt(n)) of a segment of n rows
//
//   forward   y[s] = r[s] * sum of data[indices[i]] over all i with segment_ids[i] = s
//   backward  dx[j] = sum of r[s] * dy[s] over all i with indices[i] = j, s = segment_ids[i]

#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/reduce/segments.h"

namespace millrace {
namespace {

enum class Scale : uint8_t { kSum, kMean, kSqrtN };

Status sparse_segment_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape data, c.with_rank_at_least(0, 1));
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank(1, 1));
  MR_TRY_ASSIGN(const PartialShape ids, c.with_rank(2, 1));
  MR_TRY(indices.merge(ids).status());
  std::optional<int64_t> segments;
  if (c.num_inputs() > 3) {
    MR_TRY(c.with_rank(3, 0).status());
    segments = c.input_scalar(3);
    if (segments && *segments < 0) {
      return invalid_argument("the number of rows must not be negative, got ", *segments);
    }
  }
  MR_TRY_ASSIGN(const PartialShape rest, rest_of_segments(data, PartialShape::of_rank(1)));
  return set_segments(c, segments.value_or(PartialShape::kUnknownDim), rest);
}

const char* name_of(Scale scale) {
  switch (scale) {
    case Scale::kSum:
      return "SparseSegmentSum";
    case Scale::kMean:
      return "SparseSegmentMean";
    case Scale::kSqrtN:
      break;
  }
  return "SparseSegmentSqrtN";
}

template <Scale kScale>
Status forward_grad(GradientContext& g) {
  const Expr rows = call("Gather", {shape_of(g.input(0)), int32_scalar(g.builder(), 0)});
  g.set(0, call(str_cat(name_of(kScale), "Grad"), {g.gradient(), g.input(1), g.input(2), rows}));
  return ok_status();
}

// Linear in dy, and the forward op the other way round.
template <Scale kScale>
Status backward_grad(GradientContext& g) {
  const Expr rows = call("Gather", {shape_of(g.input(0)), int32_scalar(g.builder(), 0)});
  g.set(0, call(str_cat(name_of(kScale), "WithNumSegments"),
                {g.gradient(), g.input(1), g.input(2), rows}));
  return ok_status();
}

// The divisors of all segments; empty: none.
std::vector<double> divisors(Scale scale, std::span<const int64_t> ids, int64_t segments) {
  if (scale == Scale::kSum) return {};
  std::vector<double> sizes = segment_sizes(ids, segments);
  if (scale == Scale::kSqrtN) {
    for (double& size : sizes) size = std::sqrt(size);
  }
  return sizes;
}

Status check_sizes(const KernelContext& ctx) {
  if (ctx.input(0).rank() == 0) {
    return invalid_argument("input 0 must have rank 1 or more, got a scalar");
  }
  MR_TRY(expect_rank(ctx, 1, 1));
  MR_TRY(expect_rank(ctx, 2, 1));
  if (ctx.input(1).dim(0) == ctx.input(2).dim(0)) return ok_status();
  return invalid_argument("segment_ids and indices should have same size, got ",
                          ctx.input(2).dim(0), " and ", ctx.input(1).dim(0));
}

template <Scale kScale>
Status forward_cpu(KernelContext& ctx) {
  MR_TRY(check_sizes(ctx));
  const Tensor& x = ctx.input(0);
  MR_TRY_ASSIGN(const Indices indices, Indices::read(ctx, ctx.input(1)));
  MR_TRY_ASSIGN(const Indices ids, Indices::read(ctx, ctx.input(2)));
  const std::span<const int64_t> to = ids.span(), from = indices.span();
  MR_TRY_ASSIGN(int64_t segments, count_sorted_segments(to));
  if (ctx.num_inputs() > 3) {
    MR_TRY(expect_rank(ctx, 3, 0));
    MR_TRY_ASSIGN(const int64_t given, num_segments_input(ctx, 3));
    if (segments > given) {
      return invalid_argument("segment ids must be < num_segments, got ", segments - 1, " and ",
                              given);
    }
    segments = given;
  }
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] >= 0 && from[i] < x.dim(0)) continue;
    return invalid_argument("Bad: indices[", i, "] == ", from[i], " out of range [0, ", x.dim(0),
                            ")");
  }
  MR_TRY_ASSIGN(const Shape shape, segments_shape(segments, x.shape(), 1));
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
  if (shape.num_elements() == 0) return ok_status();
  const std::vector<double> by = divisors(kScale, to, segments);
  const RowSums sums{.to = to, .from = from.data(), .divisors = by.empty() ? nullptr : by.data()};
  return sum_rows(ctx, x, sums, shape.without_first().num_elements(), *y);
}

template <Scale kScale>
Status backward_cpu(KernelContext& ctx) {
  MR_TRY(check_sizes(ctx));
  MR_TRY(expect_rank(ctx, 3, 0));
  const Tensor& dy = ctx.input(0);
  MR_TRY_ASSIGN(const int64_t rows, num_segments_input(ctx, 3));
  MR_TRY_ASSIGN(const Indices indices, Indices::read(ctx, ctx.input(1)));
  MR_TRY_ASSIGN(const Indices ids, Indices::read(ctx, ctx.input(2)));
  const std::span<const int64_t> from = ids.span(), to = indices.span();
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] < 0 || to[i] >= rows) {
      return invalid_argument("Index ", to[i], " out of range [0, ", rows, ").");
    }
    if (from[i] < 0 || from[i] >= dy.dim(0)) {
      return invalid_argument("Segment id ", from[i], " out of range [0, ", dy.dim(0), ").");
    }
  }
  MR_TRY_ASSIGN(const Shape shape, segments_shape(rows, dy.shape(), 1));
  MR_TRY_ASSIGN(Tensor * dx, ctx.allocate_output(0, shape));
  if (shape.num_elements() == 0) return ok_status();
  std::vector<double> weights = divisors(kScale, from, dy.dim(0));
  for (double& weight : weights) weight = 1 / weight;
  const RowSums sums{
      .to = to, .from = from.data(), .weights = weights.empty() ? nullptr : weights.data()};
  return sum_rows(ctx, dy, sums, shape.without_first().num_elements(), *dx);
}

template <Scale kScale>
void register_scale(Registry& registry, const std::string& what) {
  const std::string name = name_of(kScale);
  const TypeSet types = kScale == Scale::kSum ? kRealNumbers : kFloating;
  const auto add = [&](OpSpec spec, TypeSet kernel_types, KernelFunction function) {
    spec.outputs = {{"output", "T"}};
    spec.types.insert(spec.types.begin(), {{"T", kernel_types},
                                           {"Tidx", kIndexTypes, DType::kInt32},
                                           {"Tsegmentids", kIndexTypes, DType::kInt32}});
    spec.traits.cost = 0.5F;
    spec.shape = sparse_segment_shape;
    registry.add(spec);
    registry.kernel({.op = spec.name, .constraints = {{"T", kernel_types}}, .function = function});
  };
  const OpSpec::Arg indices = {"indices", "Tidx", "Of rows of data."};
  const OpSpec::Arg ids = {"segment_ids", "Tsegmentids", "For each index; they do not decrease."};
  const OpSpec::Attr sparse = {"sparse_gradient", "bool = false", "Not used."};
  add({.name = name,
       .doc = what + " of picked rows, by segment.",
       .inputs = {{"data", "T"}, indices, ids},
       .attrs = {sparse},
       .gradient = forward_grad<kScale>},
      types, forward_cpu<kScale>);
  add({.name = name + "WithNumSegments",
       .doc = what + " of picked rows, by segment. Those without rows are zero.",
       .inputs = {{"data", "T"}, indices, ids, {"num_segments", "host(Tnumsegments)"}},
       .types = {{"Tnumsegments", kIndexTypes, DType::kInt32}},
       .attrs = {sparse},
       .gradient = forward_grad<kScale>},
      types, forward_cpu<kScale>);
  add({.name = name + "Grad",
       .doc = str_cat("The gradient of ", name, "."),
       .inputs = {{"grad", "T"},
                  {"indices", "Tidx"},
                  {"segment_ids", "Tsegmentids"},
                  {"output_dim0", "host(int32)", "Rows of the output."}},
       .gradient = backward_grad<kScale>},
      kFloating, backward_cpu<kScale>);
}

}  // namespace

void register_sparse_segments(Registry& registry) {
  register_scale<Scale::kSum>(registry, "Sums");
  register_scale<Scale::kMean>(registry, "Means");
  register_scale<Scale::kSqrtN>(registry, "Sums, over the root of their number,");
}

}  // namespace millrace
