#include "millrace/ops/reduce/segment_gradients.h"

#include "millrace/graph/gradient.h"
#include "millrace/ops/reduce/linear_recurrence.h"
#include "millrace/ops/reduce/reduction_gradients.h"

namespace millrace {
namespace {

// Whether each id names a segment, in a shape that broadcasts against `rows`.
Expr is_used(Expr ids, Expr rows) {
  return with_trailing_ones(greater_equal(ids, constant_like(ids, 0)), rows);
}

Expr at_least_one(Expr count) { return call("Maximum", {count, constant_like(count, 1)}); }

Expr zero_unless(Expr condition, Expr x) {
  return call("SelectV2", {condition, x, constant_like(x, 0)});
}

// For each row of x, the product of the rows before it (or, in reverse, behind it) that have its
// id; rows of one id are neighbours.
Expr product_of_neighbours(Expr x, Expr ids, bool reverse) {
  if (!x.valid()) return x;
  OpBuilder& b = *x.builder();
  const Expr zero = int32_scalar(b, 0), one = int32_scalar(b, 1), count = size_of(ids);
  const Expr places = range(zero, count, one);
  const Expr inside = reverse ? less(places, count - 1.0) : greater(places, zero);
  const Expr same = logical_and(inside, equal(ids, previous_element(ids, zero, reverse)));
  const Expr joined = with_trailing_ones(same, x);
  const Expr factors = zero_unless(joined, previous_element(x, zero, reverse));
  const Expr starts = call("SelectV2", {joined, zeros_like(x), ones_like(x)});
  return linear_recurrence(factors, starts, zero, reverse, /*shifted=*/false);
}

Expr product_of_others(Expr x, Expr ids) {
  const Expr others = product_of_neighbours(x, ids, false) * product_of_neighbours(x, ids, true);
  return kComplex.contains(x.dtype()) ? call("Conj", {others}) : others;
}

}  // namespace

Expr with_trailing_ones(Expr x, Expr like) {
  if (!x.valid() || !like.valid()) return Expr();
  OpBuilder& b = *x.builder();
  const Expr more = reshape(rank(like) - rank(x), int32_vector(b, {1}));
  return reshape(x, concat({shape_of(x), fill(more, int32_scalar(b, 1))}, 0));
}

Expr gather_segments(Expr y, Expr ids) {
  const Expr rows = call("Gather", {y, call("Maximum", {ids, constant_like(ids, 0)})});
  return zero_unless(is_used(ids, rows), rows);
}

Status segment_extremum_gradient(GradientContext& g) {
  const Expr x = g.input(0), ids = g.input(1);
  const Expr dy = widened(g.gradient());
  const Expr chosen = cast(equal(x, call("Gather", {g.output(0), ids})), dy.dtype());
  const Expr share = dy / at_least_one(call("SegmentSum", {chosen, ids}));
  g.set(0, cast(chosen * call("Gather", {share, ids}), x.dtype()));
  return ok_status();
}

Status unsorted_segment_extremum_gradient(GradientContext& g) {
  const Expr x = g.input(0), ids = g.input(1);
  const Expr same = equal(x, gather_segments(g.output(0), ids));
  const Expr dy = widened(g.gradient());
  const Expr chosen = cast(logical_and(same, is_used(ids, x)), dy.dtype());
  const Expr count = call("UnsortedSegmentSum", {chosen, ids, g.input(2)});
  g.set(0, cast(chosen * gather_segments(dy / at_least_one(count), ids), x.dtype()));
  return ok_status();
}

Status segment_prod_gradient(GradientContext& g) {
  const Expr x = g.input(0), ids = g.input(1);
  g.set(0, call("Gather", {g.gradient(), ids}) * product_of_others(x, ids));
  return ok_status();
}

// Rows are sorted by their ids first.
Status unsorted_segment_prod_gradient(GradientContext& g) {
  OpBuilder& b = g.builder();
  const Expr x = g.input(0), ids = g.input(1), count = size_of(ids);
  const std::vector<Expr> sorted =
      call_multi("TopKV2", {reshape(ids, int32_vector(b, {-1})), count});
  if (sorted.empty()) return b.status();
  const Expr one = int32_vector(b, {1});
  const Expr rest = call("Slice", {shape_of(x), reshape(rank(ids), one), int32_vector(b, {-1})});
  const Expr rows = concat({reshape(count, one), rest}, 0);
  const Expr others = product_of_others(call("Gather", {reshape(x, rows), sorted[1]}), sorted[0]);
  const Expr back = call("Gather", {others, call("InvertPermutation", {sorted[1]})});
  g.set(0, gather_segments(g.gradient(), ids) * reshape(back, shape_of(x)));
  return ok_status();
}

}  // namespace millrace
