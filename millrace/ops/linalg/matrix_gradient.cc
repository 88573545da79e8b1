#include "millrace/ops/linalg/matrix_gradient.h"

namespace millrace {
namespace {

constexpr int64_t kFirst = 1, kSecond = 2;  // masks of StridedSlice

Expr column_range(Expr a, Expr begin, Expr end, int64_t begin_mask, int64_t end_mask) {
  OpBuilder& builder = *a.builder();
  const Expr zero = int32_scalar(builder, 0);
  return call(
      "StridedSlice",
      {a, call("Pack", {zero, begin}), call("Pack", {zero, end}), int32_vector(builder, {1, 1})},
      {{"ellipsis_mask", kFirst}, {"begin_mask", begin_mask}, {"end_mask", end_mask}});
}

}  // namespace

Expr matrix_product(Expr a, Expr b, bool adj_a, bool adj_b) {
  return call("BatchMatMulV2", {a, b}, {{"adj_x", adj_a}, {"adj_y", adj_b}});
}

Expr matrix_adjoint(Expr a) {
  if (!a.valid()) return a;
  OpBuilder& builder = *a.builder();
  const Expr one = int32_scalar(builder, 1), two = int32_scalar(builder, 2), count = rank(a);
  const Expr batch = range(int32_scalar(builder, 0), count - two, one);
  const Expr last = call("Pack", {count - one, count - two});
  const char* const op = kComplex.contains(a.dtype()) ? "ConjugateTranspose" : "Transpose";
  return call(op, {a, concat({batch, last}, 0)});
}

Expr first_columns(Expr a, Expr count) {
  if (!a.valid() || !count.valid()) return {};
  return column_range(a, zeros_like(count), count, kSecond, 0);
}

Expr columns_from(Expr a, Expr count) {
  if (!a.valid() || !count.valid()) return {};
  return column_range(a, count, zeros_like(count), 0, kSecond);
}

Expr lower_triangle(Expr a) {
  if (!a.valid()) return a;
  const Expr all = a.builder()->constant(Tensor::scalar<int64_t>(-1));
  const Expr none = a.builder()->constant(Tensor::scalar<int64_t>(0));
  return call("MatrixBandPart", {a, all, none});
}

}  // namespace millrace
