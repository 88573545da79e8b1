#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/matrix_gradient.h"
#include "millrace/ops/linalg/matrix_kernel.h"
#include "millrace/tensor/dispatch.h"

// Qr, by Householder reflections.

namespace millrace {
namespace {

using MatrixTypes = TypeList<float, double, Complex64, Complex128>;

Status qr_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool full, c.attr<bool>("full_matrices"));
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank_at_least(0, 2));
  if (!shape.rank_known()) return ok_status();
  const int64_t m = shape.dim(shape.rank() - 2), n = shape.dim(shape.rank() - 1);
  const int64_t p = m == 0 || n == 0 ? 0 : m < 0 || n < 0 ? -1 : std::min(m, n);
  c.set_output(0, with_last_dims(shape, 2, {m, full ? m : p}));
  c.set_output(1, with_last_dims(shape, 2, {full ? m : p, n}));
  return ok_status();
}

// x r^-H, of an upper triangle r.
Expr times_inverse_adjoint(Expr x, Expr r) {
  return matrix_adjoint(call("MatrixTriangularSolve", {r, matrix_adjoint(x)}, {{"lower", false}}));
}

// Of matrices with as many rows as columns or more. Roberts and Roberts, "QR and LQ decomposition
// matrix backpropagation algorithms for square, wide, and deep matrices".
Expr square_grad(Expr q, Expr r, Expr dq, Expr dr) {
  const Expr qdq = matrix_product(q, dq, true), rdr = matrix_product(r, dr, false, true);
  const Expr turn = qdq - matrix_product(dq, q, true) + rdr - matrix_product(dr, r, false, true);
  Expr inner = matrix_product(q, lower_triangle(turn)) + dq - matrix_product(q, qdq);
  if (kComplex.contains(q.dtype())) {
    // The diagonal of R stays real.
    const Expr diagonal = call("MatrixDiagPart", {rdr - matrix_product(dq, q, true)});
    const Expr phase = (call("Conj", {diagonal}) - diagonal) * 0.5;
    inner = inner + matrix_product(q, call("MatrixDiag", {phase}));
  }
  return matrix_product(q, dr) + times_inverse_adjoint(inner, r);
}

// A wide matrix is a square one x, and y = Q v beside it; of a tall one y has no columns.
Status qr_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool full, c.attr<bool>("full_matrices"));
  const Expr a = c.input(0), q = c.output(0), r = c.output(1);
  const Expr dq = c.gradient(0), dr = c.gradient(1);
  const PartialShape shape = a.shape();
  const int last = shape.rank() - 1;
  const bool known = last >= 1 && shape.dim_known(last - 1) && shape.dim_known(last);
  const bool tall = known && shape.dim(last - 1) >= shape.dim(last);
  if (full && known && shape.dim(last - 1) > shape.dim(last)) {
    return unimplemented(
        "the gradient of Qr with full_matrices, of matrices with more rows than columns: ", shape);
  }
  if (tall) {
    c.set(0, square_grad(q, r, dq, dr));
    return ok_status();
  }
  OpBuilder& builder = c.builder();
  const Expr count =
      call("GatherV2", {shape_of(q), rank(q) - int32_scalar(builder, 1), int32_scalar(builder, 0)});
  const Expr y = columns_from(a, count), dv = columns_from(dr, count);
  const Expr dx = square_grad(q, first_columns(r, count), dq + matrix_product(y, dv, false, true),
                              first_columns(dr, count));
  c.set(0, concat({dx, matrix_product(q, dv)}, -1));
  return ok_status();
}

template <class T>
class QrKernel final : public Kernel {
 public:
  explicit QrKernel(bool full) : full_(full) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool full, node.attr<bool>("full_matrices"));
    return std::unique_ptr<Kernel>(std::make_unique<QrKernel>(full));
  }

  Status compute(KernelContext& ctx) const override {
    using W = WideNumber<T>;
    const Tensor& input = ctx.input(0);
    MR_TRY_ASSIGN(const Matrices a, read_matrices(input, false));
    const int64_t m = a.rows, n = a.columns, columns = full_ ? m : std::min(m, n);
    MR_TRY_ASSIGN(const Shape q_shape, with_matrix(input.shape(), m, columns));
    MR_TRY_ASSIGN(const Shape r_shape, with_matrix(input.shape(), columns, n));
    MR_TRY_ASSIGN(Tensor * q, ctx.allocate_output(0, q_shape));
    MR_TRY_ASSIGN(Tensor * r, ctx.allocate_output(1, r_shape));
    if (q->num_elements() == 0) return ok_status();
    return for_each_matrix<W>(ctx, a.count, m * n + m * columns, 4 * cubic_cost(std::max(m, n)),
                              [&](int64_t i, W* matrix) {
                                W* const basis = matrix + m * n;
                                load_matrix<T>(input, i, m * n, matrix);
                                householder_qr(matrix, m, n, basis, columns);
                                store_matrix<T>(basis, i, m * columns, *q);
                                store_matrix<T>(matrix, i, columns * n, *r);
                                return ok_status();
                              });
  }

 private:
  bool full_;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, QrKernel<Ts>>("Qr", DeviceKind::kCpu), ...);
}

}  // namespace

void register_qr(Registry& registry) {
  registry.add({.name = "Qr",
                .doc = "input = q r, the columns of q orthonormal and r an upper triangle.",
                .inputs = {{"input", "T"}},
                .outputs = {{"q", "T"}, {"r", "T"}},
                .types = {{"T", type_set_of<MatrixTypes>}},
                .attrs = {{"full_matrices", "bool = false"}},
                .traits = {.cost = 1000},
                .shape = qr_shape,
                .gradient = qr_grad});
  register_kernels(registry, MatrixTypes());
}

}  // namespace millrace
