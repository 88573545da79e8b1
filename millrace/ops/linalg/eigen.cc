#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/matrix_gradient.h"
#include "millrace/ops/linalg/matrix_kernel.h"
#include "millrace/tensor/dispatch.h"

// SelfAdjointEig (eigenvalues above the vectors, in one matrix), SelfAdjointEigV2 and Svd, by
// Jacobi rotations.

namespace millrace {
namespace {

using RealMatrixTypes = TypeList<float, double>;
using MatrixTypes = TypeList<float, double, Complex64, Complex128>;

Status eigen_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool vectors, c.attr<bool>("compute_v"));
  MR_TRY_ASSIGN(const PartialShape shape, square_matrices(c, 0));
  c.set_output(0, with_last_dims(shape, 1, {}));
  c.set_output(1, vectors ? shape : PartialShape({0}));
  return ok_status();
}

Status stacked_eigen_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape shape, square_matrices(c, 0));
  if (!shape.rank_known()) return ok_status();
  const int64_t n = shape.dim(shape.rank() - 1);
  if (n == std::numeric_limits<int64_t>::max()) {
    return invalid_argument("expected matrices that fit in memory, got shape ", shape);
  }
  c.set_output(0, with_last_dims(shape, 2, {n < 0 ? -1 : n + 1, n}));
  return ok_status();
}

Status svd_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool vectors, c.attr<bool>("compute_uv"));
  MR_TRY_ASSIGN(const bool full, c.attr<bool>("full_matrices"));
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank_at_least(0, 2));
  if (!vectors) {
    c.set_output(1, PartialShape({0}));
    c.set_output(2, PartialShape({0}));
  }
  if (!shape.rank_known()) return ok_status();
  const int64_t m = shape.dim(shape.rank() - 2), n = shape.dim(shape.rank() - 1);
  const int64_t p = m == 0 || n == 0 ? 0 : m < 0 || n < 0 ? -1 : std::min(m, n);
  c.set_output(0, with_last_dims(shape, 2, {p}));
  if (vectors) {
    c.set_output(1, with_last_dims(shape, 2, {m, full ? m : p}));
    c.set_output(2, with_last_dims(shape, 2, {n, full ? n : p}));
  }
  return ok_status();
}

// With E the eigenvalues and F[i, j] = 1 / (e[j] - e[i]) off the diagonal,
// dA = V (diag(de) + F * (V^T dV)) V^T, of which the lower triangle alone is read.
Status eigen_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool vectors, c.attr<bool>("compute_v"));
  const Expr a = c.input(0), de = c.gradient(0);
  if (!a.valid()) return ok_status();
  Expr e = c.output(0), v = c.output(1);
  if (!vectors) {
    const std::vector<Expr> both = call_multi("SelfAdjointEigV2", {a});
    if (both.empty()) return ok_status();
    e = both[0];
    v = both[1];
  }
  OpBuilder& builder = c.builder();
  Expr middle = call("MatrixDiag", {de});
  if (vectors && c.has_gradient(1)) {
    const Expr rows = expand_dims(e, int32_scalar(builder, -1));
    const Expr columns = expand_dims(e, int32_scalar(builder, -2));
    const Expr distance = columns - rows;
    // Equal eigenvalues have no vectors of their own, and the diagonal has no distance.
    middle = middle + call("DivNoNan", {matrix_product(v, c.gradient(1), true, false), distance});
  }
  const Expr da = matrix_product(matrix_product(v, middle, false, false), v, false, true);
  const Expr none = builder.constant(Tensor::scalar<int64_t>(0));
  // Both halves in the lower one.
  const Expr both = da + matrix_product(matrix_product(v, middle, false, true), v, false, true);
  c.set(0, lower_triangle(both) - call("MatrixBandPart", {both, none, none}) * 0.5);
  return ok_status();
}

// With F[i, j] = 1 / (s[j]^2 - s[i]^2) off the diagonal, and K(X) = F * (X^H dX - dX^H X),
//
//   dA = U (diag(ds) + K(U) S + S K(V)) V^H + (dU - U U^H dU) S^-1 V^H + U S^-1 (dV - V V^H dV)^H;
//
// of complex matrices, whose vectors' phases are nobody's choice, with U S^-1 (L^H - L) V^H / 2
// more, L the diagonal of V^H dV.
Status svd_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool vectors, c.attr<bool>("compute_uv"));
  MR_TRY_ASSIGN(const bool full, c.attr<bool>("full_matrices"));
  const Expr a = c.input(0);
  Expr s = c.output(0), u = c.output(1), v = c.output(2), ds = c.gradient(0);
  if (!a.valid()) return ok_status();
  const PartialShape shape = a.shape();
  const int last = shape.rank() - 1;
  const bool known = last >= 1 && shape.dim_known(last - 1) && shape.dim_known(last);
  const int64_t rows = known ? shape.dim(last - 1) : 0, columns = known ? shape.dim(last) : 0;
  if (vectors && full && rows != columns) {
    return unimplemented("the gradient of Svd with full_matrices, of matrices not square: ", shape);
  }
  if (!vectors) {
    const std::vector<Expr> all = call_multi("Svd", {a});
    if (all.empty()) return ok_status();
    u = all[1];
    v = all[2];
  }
  const bool complex = kComplex.contains(a.dtype());
  if (complex) ds = (ds + call("Conj", {ds})) * 0.5;
  Expr middle = call("MatrixDiag", {ds});
  if (!vectors || !(c.has_gradient(1) || c.has_gradient(2))) {
    c.set(0, matrix_product(matrix_product(u, middle), v, false, true));
    return ok_status();
  }
  const auto divide = [](Expr x, Expr by) { return call("DivNoNan", {x, by}); };
  const Expr in_rows = expand_dims(s, int32_scalar(c.builder(), -2));
  const Expr in_columns = expand_dims(s, int32_scalar(c.builder(), -1));
  // Equal values have no vectors of their own, and the diagonal has no distance.
  const Expr distance = square(in_rows) - square(in_columns);
  const auto turn = [&](Expr x, Expr dx) {
    return divide(matrix_product(x, dx, true) - matrix_product(dx, x, true), distance);
  };
  const auto outside = [&](Expr x, Expr dx) {
    return divide(dx - matrix_product(x, matrix_product(x, dx, true)), in_rows);
  };
  Expr more;
  if (c.has_gradient(1)) {
    middle = middle + turn(u, c.gradient(1)) * in_rows;
    if (!known || rows > columns) {
      more = matrix_product(outside(u, c.gradient(1)), v, false, true);
    }
  }
  if (c.has_gradient(2)) {
    const Expr dv = c.gradient(2);
    middle = middle + turn(v, dv) * in_columns;
    if (!known || columns > rows) {
      const Expr part = matrix_product(u, outside(v, dv), false, true);
      more = more.valid() ? more + part : part;
    }
    if (complex) {
      const Expr diagonal = call("MatrixDiagPart", {matrix_product(v, dv, true)});
      const Expr phase = divide(call("Conj", {diagonal}) - diagonal, s) * 0.5;
      middle = middle + call("MatrixDiag", {phase});
    }
  }
  const Expr da = matrix_product(matrix_product(u, middle), v, false, true);
  c.set(0, more.valid() ? da + more : da);
  return ok_status();
}

template <class T>
class EigenKernel final : public Kernel {
 public:
  explicit EigenKernel(bool vectors) : vectors_(vectors) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool vectors, node.attr<bool>("compute_v"));
    return std::unique_ptr<Kernel>(std::make_unique<EigenKernel>(vectors));
  }
  Status compute(KernelContext& ctx) const override {
    const Tensor& input = ctx.input(0);
    MR_TRY_ASSIGN(const Matrices m, read_matrices(input, true));
    const int64_t n = m.rows;
    MR_TRY_ASSIGN(const Shape values,
                  Shape::make(input.shape().dims().first(static_cast<size_t>(input.rank() - 1))));
    MR_TRY_ASSIGN(Tensor * e, ctx.allocate_output(0, values));
    MR_TRY_ASSIGN(Tensor * v, ctx.allocate_output(1, vectors_ ? input.shape() : Shape{0}));
    if (input.num_elements() == 0) return ok_status();
    return for_each_matrix<double>(
        ctx, m.count, 2 * n * n + n, 20 * cubic_cost(n), [&](int64_t i, double* a) {
          double* const vectors = a + n * n;
          double* const eigenvalues = vectors + n * n;
          load_matrix<T>(input, i, n * n, a);
          symmetric_eigen(a, n, eigenvalues, vectors_ ? vectors : nullptr);
          store_matrix<T>(eigenvalues, i, n, *e);
          if (vectors_) store_matrix<T>(vectors, i, n * n, *v);
          return ok_status();
        });
  }

 private:
  bool vectors_;
};

template <class T>
Status stacked_eigen(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  MR_TRY_ASSIGN(const Matrices m, read_matrices(input, true));
  const int64_t n = m.rows;
  MR_TRY_ASSIGN(const Shape shape, with_matrix(input.shape(), n + 1, n));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  if (out->num_elements() == 0) return ok_status();
  return for_each_matrix<double>(ctx, m.count, 2 * n * n + n, 20 * cubic_cost(n),
                                 [&](int64_t i, double* a) {
                                   double* const stack = a + n * n;
                                   load_matrix<T>(input, i, n * n, a);
                                   symmetric_eigen(a, n, stack, stack + n);
                                   store_matrix<T>(stack, i, n * n + n, *out);
                                   return ok_status();
                                 });
}

template <class T>
class SvdKernel final : public Kernel {
 public:
  using W = WideNumber<T>;

  SvdKernel(bool vectors, bool full) : vectors_(vectors), full_(full) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool vectors, node.attr<bool>("compute_uv"));
    MR_TRY_ASSIGN(const bool full, node.attr<bool>("full_matrices"));
    return std::unique_ptr<Kernel>(std::make_unique<SvdKernel>(vectors, full));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& input = ctx.input(0);
    MR_TRY_ASSIGN(const Matrices m, read_matrices(input, false));
    const int64_t p = std::min(m.rows, m.columns), most = std::max(m.rows, m.columns);
    std::vector<int64_t> dims(input.shape().dims().begin(), input.shape().dims().end() - 2);
    dims.push_back(p);
    MR_TRY_ASSIGN(const Shape values, Shape::make(dims));
    MR_TRY_ASSIGN(const Shape u_shape, with_matrix(input.shape(), m.rows, full_ ? m.rows : p));
    MR_TRY_ASSIGN(const Shape v_shape,
                  with_matrix(input.shape(), m.columns, full_ ? m.columns : p));
    MR_TRY_ASSIGN(Tensor * s, ctx.allocate_output(0, values));
    MR_TRY_ASSIGN(Tensor * u, ctx.allocate_output(1, vectors_ ? u_shape : Shape{0}));
    MR_TRY_ASSIGN(Tensor * v, ctx.allocate_output(2, vectors_ ? v_shape : Shape{0}));
    if (m.count == 0 || (p == 0 && (!vectors_ || !full_))) return ok_status();
    // The tall matrix, its right vectors, values (as many numbers), and a complete basis.
    const int64_t size = most * p + p * p + p + (full_ ? most * most : 0);
    return for_each_matrix<W>(ctx, m.count, size, 20 * cubic_cost(most),
                              [&](int64_t i, W* a) { return one(m, input, i, a, s, u, v); });
  }

 private:
  Status one(const Matrices& m, const Tensor& input, int64_t index, W* a, Tensor* s, Tensor* u,
             Tensor* v) const {
    // Of a wide matrix, the adjoint: its left vectors are the right ones.
    const bool wide = m.rows < m.columns;
    const int64_t tall = std::max(m.rows, m.columns), p = std::min(m.rows, m.columns);
    const T* const from = input.data<T>().data() + index * m.size();
    for (int64_t i = 0; i < tall; ++i) {
      for (int64_t j = 0; j < p; ++j) {
        a[i * p + j] =
            wide ? conjugate(static_cast<W>(from[j * tall + i])) : static_cast<W>(from[i * p + j]);
      }
    }
    W* const right = a + tall * p;
    std::vector<double> values(static_cast<size_t>(p));
    jacobi_svd(a, tall, p, values.data(), right);
    for (int64_t j = 0; j < p; ++j) {
      s->mutable_data<T>()[static_cast<size_t>(index * p + j)] =
          static_cast<T>(static_cast<typename RealPart<T>::Type>(values[static_cast<size_t>(j)]));
    }
    if (!vectors_) return ok_status();
    Tensor& short_side = wide ? *u : *v;
    Tensor& long_side = wide ? *v : *u;
    store_matrix<T>(right, index, p * p, short_side);
    if (!full_) {
      store_matrix<T>(a, index, tall * p, long_side);
      return ok_status();
    }
    W* const basis = right + p * p + p;
    for (int64_t i = 0; i < tall; ++i) std::copy_n(a + i * p, p, basis + i * tall);
    complete_basis(basis, tall, tall, p);
    store_matrix<T>(basis, index, tall * tall, long_side);
    return ok_status();
  }

  static double conjugate(double x) { return x; }
  static Complex128 conjugate(Complex128 x) { return std::conj(x); }

  bool vectors_, full_;
};

template <class... Ts>
void register_eigen_kernels(Registry& registry, TypeList<Ts...>) {
  for (const std::string prefix : {"", "Batch"}) {
    (registry.kernel<Ts, EigenKernel<Ts>>(prefix + "SelfAdjointEigV2", DeviceKind::kCpu), ...);
    (registry.kernel<Ts>(prefix + "SelfAdjointEig", DeviceKind::kCpu, &stacked_eigen<Ts>), ...);
  }
}
template <class... Ts>
void register_svd_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, SvdKernel<Ts>>("Svd", DeviceKind::kCpu), ...);
  (registry.kernel<Ts, SvdKernel<Ts>>("BatchSvd", DeviceKind::kCpu), ...);
}

}  // namespace

void register_eigen(Registry& registry) {
  const TypeSet real = type_set_of<RealMatrixTypes>;
  const auto add = [&](OpSpec spec, TypeSet types, int since) {
    registry.add(older_matrix_op(spec, types, since));
    registry.add(spec);
  };
  add({.name = "SelfAdjointEigV2",
       .doc = "Eigenvalues, rising, and eigenvectors of symmetric matrices, of which the "
              "lower triangle is read.",
       .inputs = {{"input", "T"}},
       .outputs = {{"e", "T"}, {"v", "T"}},
       .types = {{"T", type_set_of<RealMatrixTypes>}},
       .attrs = {{"compute_v", "bool = true"}},
       .traits = {.cost = 1000},
       .shape = eigen_shape,
       .gradient = eigen_grad},
      real, 13);
  add({.name = "Svd",
       .doc = "Singular values, falling, and the vectors to both sides of matrices: input "
              "= u diag(s) v^H.",
       .inputs = {{"input", "T"}},
       .outputs = {{"s", "T"}, {"u", "T"}, {"v", "T"}},
       .types = {{"T", type_set_of<MatrixTypes>}},
       .attrs = {{"compute_uv", "bool = true"}, {"full_matrices", "bool = false"}},
       .traits = {.cost = 1000},
       .shape = svd_shape,
       .gradient = svd_grad},
      type_set_of<MatrixTypes>, 13);
  add({.name = "SelfAdjointEig",
       .doc = "Eigenvalues of symmetric matrices in a first row, eigenvectors below.",
       .inputs = {{"input", "T"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", type_set_of<RealMatrixTypes>}},
       .traits = {.cost = 1000},
       .shape = stacked_eigen_shape,
       .no_gradient = "an older form of SelfAdjointEigV2, which has one",
       .deprecated_since = 11,
       .deprecation = "Use SelfAdjointEigV2 instead."},
      real, 11);
  register_eigen_kernels(registry, RealMatrixTypes());
  register_svd_kernels(registry, MatrixTypes());
}

}  // namespace millrace
