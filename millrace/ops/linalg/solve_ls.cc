#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/matrix_kernel.h"
#include "millrace/tensor/dispatch.h"

// MatrixSolveLs: the X that makes |A X - B|^2 + l2_regularizer |X|^2 least. `fast` solves the
// normal equations by Cholesky; otherwise the singular value decomposition gives the smallest X,
// without regularisation.

namespace millrace {
namespace {

using RealMatrixTypes = TypeList<float, double>;
using MatrixTypes = TypeList<float, double, Complex64, Complex128>;

Status solve_ls_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape matrix, c.with_rank_at_least(0, 2));
  MR_TRY_ASSIGN(const PartialShape rhs, c.with_rank_at_least(1, 2));
  MR_TRY(c.with_rank(2, 0).status());
  if (!matrix.rank_known() || !rhs.rank_known()) return ok_status();
  MR_TRY_ASSIGN(const PartialShape rows,
                with_last_dims(matrix, 1, {}).merge(with_last_dims(rhs, 1, {})));
  c.set_output(0,
               with_last_dims(rows, 1, {matrix.dim(matrix.rank() - 1), rhs.dim(rhs.rank() - 1)}));
  return ok_status();
}

// With N = A^H A + l I and Z = N^-1 G:  dB = A Z,  dA = B Z^H - A (X Z^H + Z X^H),  dl = -<Z, X>.
// Of wide matrices, with K = A A^H + l I, T = K^-1 B and W = K^-1 A G:  dB = W,
// dA = T G^H - (W T^H + T W^H) A,  dl = -<W, T>.
Status solve_ls_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool fast, c.attr<bool>("fast"));
  const Expr a = c.input(0), b = c.input(1), x = c.output(0), g = c.gradient();
  if (!a.valid()) return ok_status();
  OpBuilder& builder = c.builder();
  const auto product = [](Expr m, Expr n, bool adj_m = false, bool adj_n = false) {
    return call("BatchMatMulV2", {m, n}, {{"adj_x", adj_m}, {"adj_y", adj_n}});
  };
  const PartialShape shape = a.shape();
  const int rank = shape.rank();
  const bool wide = rank >= 2 && shape.dim_known(rank - 2) && shape.dim_known(rank - 1) &&
                    shape.dim(rank - 2) < shape.dim(rank - 1);
  Expr normal = wide ? product(a, a, false, true) : product(a, a, true, false);
  if (fast) {
    const Expr diagonal = call("MatrixDiagPart", {normal});
    const Expr l2 = cast(c.input(2), a.dtype());
    normal = normal + call("MatrixDiag", {ones_like(diagonal) * l2});
  }
  const auto solve = [&](Expr rhs) { return call("MatrixSolve", {normal, rhs}); };
  Expr left, right;  // whose product is what l2 does
  if (wide) {
    const Expr t = solve(b), w = solve(product(a, g));
    c.set(1, w);
    c.set(0, product(t, g, false, true) -
                 product(product(w, t, false, true) + product(t, w, false, true), a));
    left = w;
    right = t;
  } else {
    const Expr z = solve(g);
    c.set(1, product(a, z));
    c.set(0, product(b, z, false, true) -
                 product(a, product(x, z, false, true) + product(z, x, false, true)));
    left = z;
    right = x;
  }
  if (fast) {
    Expr terms = left * right;
    if (kComplex.contains(a.dtype())) {
      const DType part = a.dtype() == DType::kComplex64 ? DType::kFloat : DType::kDouble;
      terms = call("Real", {call("Conj", {left}) * right}, {{"Tout", part}});
    }
    const Expr axes =
        range(int32_scalar(builder, 0), millrace::rank(terms), int32_scalar(builder, 1));
    c.set(2, -sum(cast(terms, DType::kDouble), axes));
  }
  return ok_status();
}

double conjugate(double x) { return x; }
Complex128 conjugate(Complex128 x) { return std::conj(x); }

// C [m, n] = A B, each perhaps adjoint; A is then [inner, m], B [n, inner].
template <class W>
void multiply(const W* a, bool adj_a, const W* b, bool adj_b, int64_t m, int64_t inner, int64_t n,
              W* c) {
  std::fill_n(c, m * n, W{});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t k = 0; k < inner; ++k) {
      const W left = adj_a ? conjugate(a[k * m + i]) : a[i * inner + k];
      for (int64_t j = 0; j < n; ++j) {
        c[i * n + j] += left * (adj_b ? conjugate(b[j * inner + k]) : b[k * n + j]);
      }
    }
  }
}

template <class T>
class SolveLsKernel final : public Kernel {
 public:
  using W = WideNumber<T>;

  explicit SolveLsKernel(bool fast) : fast_(fast) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool fast, node.attr<bool>("fast"));
    return std::unique_ptr<Kernel>(std::make_unique<SolveLsKernel>(fast));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor &matrix = ctx.input(0), &rhs = ctx.input(1);
    MR_TRY_ASSIGN(const Matrices a, read_matrices(matrix, false));
    MR_TRY_ASSIGN(const Matrices b, read_matrices(rhs, false));
    MR_TRY(expect_rank(ctx, 2, 0));
    const double l2 = ctx.input(2).data<double>()[0];
    if (!(l2 >= 0)) return invalid_argument("l2_regularizer must not be negative, got ", l2);
    MR_TRY_ASSIGN(const Shape expected, with_matrix(matrix.shape(), a.rows, b.columns));
    if (!(rhs.shape() == expected)) {
      return invalid_argument("rhs must have shape ", expected, " for matrices of ", matrix.shape(),
                              ", got ", rhs.shape());
    }
    MR_TRY_ASSIGN(const Shape shape, with_matrix(matrix.shape(), a.columns, b.columns));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    const int64_t m = a.rows, n = a.columns, k = b.columns, p = std::min(m, n);
    const int64_t most = std::max(m, n);
    // A, B, X, one square matrix, one more of A's size, and a product of the smaller side with B.
    const int64_t size = 2 * m * n + m * k + n * k + p * p + p * k + 1;
    return for_each_matrix<W>(ctx, a.count, size, 4 * cubic_cost(most), [&](int64_t i, W* s) {
      W* const am = s;
      W* const bm = am + m * n;
      W* const x = bm + m * k;
      load_matrix<T>(matrix, i, m * n, am);
      load_matrix<T>(rhs, i, m * k, bm);
      W* const rest = x + n * k;
      if (!fast_) {
        smallest(am, bm, m, n, k, x, rest);
      } else if (!normal_equations(am, bm, m, n, k, l2, x, rest)) {
        return invalid_argument(
            "Cholesky decomposition was not successful. The input might be rank deficient.");
      }
      store_matrix<T>(x, i, n * k, *out);
      return ok_status();
    });
  }

 private:
  static bool normal_equations(const W* a, const W* b, int64_t m, int64_t n, int64_t k, double l2,
                               W* x, W* rest) {
    const bool wide = m < n;
    const int64_t p = std::min(m, n);
    W* const square = rest;
    W* const solved = wide ? square + p * p : x;
    if (wide) {
      multiply(a, false, a, true, m, n, m, square);
      std::copy_n(b, m * k, solved);
    } else {
      multiply(a, true, a, false, n, m, n, square);
      multiply(a, true, b, false, n, m, k, solved);
    }
    for (int64_t i = 0; i < p; ++i) square[i * p + i] += l2;
    if (!cholesky_factor(square, p)) return false;
    triangular_solve(square, p, true, false, solved, k);
    triangular_solve(square, p, true, true, solved, k);
    if (wide) multiply(a, true, solved, false, n, m, k, x);
    return true;
  }

  // X = V S^-1 U^H B, over singular values that are not rounding errors.
  static void smallest(const W* a, const W* b, int64_t m, int64_t n, int64_t k, W* x, W* rest) {
    const bool wide = m < n;
    const int64_t tall = std::max(m, n), p = std::min(m, n);
    W* const left = rest;
    W* const right = left + m * n;
    W* const middle = right + p * p;
    for (int64_t i = 0; i < tall; ++i) {
      for (int64_t j = 0; j < p; ++j) {
        left[i * p + j] = wide ? conjugate(a[j * n + i]) : a[i * n + j];
      }
    }
    std::vector<double> values(static_cast<size_t>(p));
    jacobi_svd(left, tall, p, values.data(), right);
    multiply(wide ? right : left, true, b, false, p, m, k, middle);
    for (int64_t j = 0; j < p; ++j) {
      const double value = values[static_cast<size_t>(j)];
      const double inverse = value > values[0] * 1e-15 * static_cast<double>(tall) ? 1 / value : 0;
      for (int64_t c = 0; c < k; ++c) middle[j * k + c] *= inverse;
    }
    multiply(wide ? left : right, false, middle, false, n, p, k, x);
  }

  bool fast_;
};

template <class... Ts>
void register_kernels(Registry& registry, const char* op, TypeList<Ts...>) {
  (registry.kernel(
       {.op = op, .constraints = {{"T", {dtype_of<Ts>}}}, .factory = &SolveLsKernel<Ts>::make}),
   ...);
}

}  // namespace

void register_solve_ls(Registry& registry) {
  OpSpec spec = {.name = "MatrixSolveLs",
                 .doc = "Solves linear least squares problems, with l2 regularisation where fast.",
                 .inputs = {{"matrix", "T"}, {"rhs", "T"}, {"l2_regularizer", "host(double)"}},
                 .outputs = {{"output", "T"}},
                 .types = {{"T", type_set_of<MatrixTypes>}},
                 .attrs = {{"fast", "bool = true"}},
                 .traits = {.cost = 200},
                 .shape = solve_ls_shape,
                 .gradient = solve_ls_grad};
  registry.add(older_matrix_op(spec, type_set_of<RealMatrixTypes>, 13));
  registry.add(spec);
  register_kernels(registry, "MatrixSolveLs", MatrixTypes());
  register_kernels(registry, "BatchMatrixSolveLs", RealMatrixTypes());
}

}  // namespace millrace
