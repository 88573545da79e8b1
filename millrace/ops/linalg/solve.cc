#include <cmath>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/matrix_kernel.h"
#include "millrace/tensor/dispatch.h"

// MatrixInverse, MatrixDeterminant, LogMatrixDeterminant and MatrixSolve by LU decomposition,
// MatrixTriangularSolve by substitution.

namespace millrace {
namespace {

using RealMatrixTypes = TypeList<float, double>;
using MatrixTypes = TypeList<float, double, Complex64, Complex128>;

Status square_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, square_matrices(c, 0));
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status determinant_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape shape, square_matrices(c, 0));
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, with_last_dims(shape, 2, {}));
  return ok_status();
}

Status solve_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape matrix, square_matrices(c, 0));
  MR_TRY_ASSIGN(const PartialShape rhs, c.with_rank_at_least(1, 2));
  if (!matrix.rank_known() || !rhs.rank_known()) return ok_status();
  // The batch, the rows, and any columns.
  MR_TRY_ASSIGN(const PartialShape rows,
                with_last_dims(matrix, 1, {}).merge(with_last_dims(rhs, 1, {})));
  c.set_output(0, with_last_dims(rows, 0, {rhs.dim(rhs.rank() - 1)}));
  return ok_status();
}

Expr product(Expr a, Expr b, bool adj_a = false, bool adj_b = false) {
  return call("BatchMatMulV2", {a, b}, {{"adj_x", adj_a}, {"adj_y", adj_b}});
}

// Y = A^-1: dA = -Y^H G Y^H; of the adjoint, dA = -Y G^H Y.
Status inverse_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool adjoint, c.attr<bool>("adjoint"));
  const Expr y = c.output(0), g = c.gradient();
  c.set(0, adjoint ? -product(y, product(g, y, true, false))
                   : -product(y, product(g, y, false, true), true, false));
  return ok_status();
}

// g spread over matrices.
Expr per_matrix(const GradientContext& c, Expr g) {
  const Expr last = int32_scalar(c.builder(), -1);
  return expand_dims(expand_dims(g, last), last);
}

Status determinant_grad(GradientContext& c) {
  const Expr a = c.input(0), g = c.gradient();
  if (!a.valid()) return ok_status();
  const Expr y = kComplex.contains(a.dtype()) ? call("Conj", {c.output(0)}) : c.output(0);
  c.set(0, per_matrix(c, g * y) * call("MatrixInverse", {a}, {{"adjoint", true}}));
  return ok_status();
}

// log |det| is the real part of log det, whose differential is tr(A^-1 dA). The sign is constant of
// real matrices; of complex ones it turns with the imaginary part.
Status log_determinant_grad(GradientContext& c) {
  const Expr a = c.input(0);
  if (!a.valid()) return ok_status();
  Expr g = c.gradient(1);
  if (kComplex.contains(a.dtype())) {
    const DType part = a.dtype() == DType::kComplex64 ? DType::kFloat : DType::kDouble;
    const Expr turn = call("Conj", {c.gradient(0)}) * c.output(0);
    g = call("Complex",
             {call("Real", {g}, {{"Tout", part}}), -call("Imag", {turn}, {{"Tout", part}})},
             {{"Tout", a.dtype()}});
  }
  c.set(0, per_matrix(c, g) * call("MatrixInverse", {a}, {{"adjoint", true}}));
  return ok_status();
}

Status solve_grad_with(GradientContext& c, const char* op, const AttrMap& attrs, bool adjoint,
                       Expr* matrix_gradient) {
  const Expr a = c.input(0), x = c.output(0), g = c.gradient();
  const Expr b = call(op, {a, g}, attrs);
  c.set(1, b);
  *matrix_gradient = adjoint ? -product(x, b, false, true) : -product(b, x, false, true);
  return ok_status();
}

Status solve_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool adjoint, c.attr<bool>("adjoint"));
  Expr da;
  MR_TRY(solve_grad_with(c, "MatrixSolve", {{"adjoint", !adjoint}}, adjoint, &da));
  c.set(0, da);
  return ok_status();
}

Status triangular_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool adjoint, c.attr<bool>("adjoint"));
  MR_TRY_ASSIGN(const bool lower, c.attr<bool>("lower"));
  Expr da;
  MR_TRY(solve_grad_with(c, "MatrixTriangularSolve", {{"adjoint", !adjoint}, {"lower", lower}},
                         adjoint, &da));
  const Expr all = c.builder().constant(Tensor::scalar<int64_t>(-1));
  const Expr none = c.builder().constant(Tensor::scalar<int64_t>(0));
  c.set(0,
        lower ? call("MatrixBandPart", {da, all, none}) : call("MatrixBandPart", {da, none, all}));
  return ok_status();
}

Status not_invertible(const char* input) { return invalid_argument(input, " is not invertible."); }

// The factors of one matrix. Every matrix has n numbers for pivots after its own.
template <class T>
struct Factors {
  using W = WideNumber<T>;
  std::vector<int64_t> pivots;
  int sign = 1;

  Factors(const Tensor& tensor, int64_t i, int64_t n, W* lu) : pivots(static_cast<size_t>(n)) {
    load_matrix<T>(tensor, i, n * n, lu);
    sign = lu_factor(lu, n, pivots.data());
  }
};

Result<bool> adjoint_of(const KernelNode& node) { return node.attr<bool>("adjoint"); }

template <class T>
class InverseKernel final : public Kernel {
 public:
  explicit InverseKernel(bool adjoint) : adjoint_(adjoint) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool adjoint, adjoint_of(node));
    return std::unique_ptr<Kernel>(std::make_unique<InverseKernel>(adjoint));
  }
  Status compute(KernelContext& ctx) const override {
    using W = WideNumber<T>;
    const Tensor& input = ctx.input(0);
    MR_TRY_ASSIGN(const Matrices m, read_matrices(input, true));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, input.shape()));
    if (out->num_elements() == 0) return ok_status();
    const int64_t n = m.rows;
    return for_each_matrix<W>(ctx, m.count, 2 * n * n, 2 * cubic_cost(n), [&](int64_t i, W* lu) {
      const Factors<T> factors(input, i, n, lu);
      if (lu_singular(lu, n)) return not_invertible("Input");
      W* const inverse = lu + n * n;
      for (int64_t k = 0; k < n * n; ++k) inverse[k] = k / n == k % n ? W{1} : W{};
      lu_solve(lu, factors.pivots.data(), n, adjoint_, inverse, n);
      store_matrix<T>(inverse, i, n * n, *out);
      return ok_status();
    });
  }

 private:
  bool adjoint_;
};

template <class T, bool kLog>
Status determinant(KernelContext& ctx) {
  using W = WideNumber<T>;
  const Tensor& input = ctx.input(0);
  MR_TRY_ASSIGN(const Matrices m, read_matrices(input, true));
  MR_TRY_ASSIGN(const Shape shape,
                Shape::make(input.shape().dims().first(static_cast<size_t>(input.rank() - 2))));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  Tensor* logs = nullptr;
  if constexpr (kLog) {
    MR_TRY_ASSIGN(logs, ctx.allocate_output(1, shape));
  }
  if (out->num_elements() == 0) return ok_status();
  const int64_t n = m.rows;
  return for_each_matrix<W>(ctx, m.count, n * n, cubic_cost(n), [&](int64_t i, W* lu) {
    const Factors<T> factors(input, i, n, lu);
    W result = static_cast<double>(factors.sign);
    double log = 0;
    for (int64_t k = 0; k < n; ++k) {
      const W pivot = lu[k * n + k];
      const double size = std::abs(pivot);
      if constexpr (kLog) {
        result = size == 0 ? W{} : result * (pivot / size);
        log += std::log(size);
      } else {
        result *= pivot;
      }
    }
    out->mutable_data<T>()[static_cast<size_t>(i)] = static_cast<T>(result);
    if constexpr (kLog) {
      logs->mutable_data<T>()[static_cast<size_t>(i)] =
          static_cast<T>(static_cast<typename RealPart<T>::Type>(log));
    }
    return ok_status();
  });
}

// Both kinds of solving.
template <class T, bool kTriangular>
class SolveKernel final : public Kernel {
 public:
  SolveKernel(bool adjoint, bool lower) : adjoint_(adjoint), lower_(lower) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool adjoint, adjoint_of(node));
    bool lower = true;
    if constexpr (kTriangular) {
      MR_TRY_ASSIGN(lower, node.attr<bool>("lower"));
    }
    return std::unique_ptr<Kernel>(std::make_unique<SolveKernel>(adjoint, lower));
  }

  Status compute(KernelContext& ctx) const override {
    using W = WideNumber<T>;
    const Tensor &matrix = ctx.input(0), &rhs = ctx.input(1);
    MR_TRY_ASSIGN(const Matrices a, read_matrices(matrix, true));
    MR_TRY_ASSIGN(const Matrices b, read_matrices(rhs, false));
    MR_TRY_ASSIGN(const Shape expected, with_matrix(matrix.shape(), a.rows, b.columns));
    if (!(rhs.shape() == expected)) {
      return invalid_argument("rhs must have shape ", expected, " for matrices of ", matrix.shape(),
                              ", got ", rhs.shape());
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, expected));
    if (out->num_elements() == 0) return ok_status();
    const int64_t n = a.rows;
    return for_each_matrix<W>(ctx, a.count, a.size() + b.size(), cubic_cost(n),
                              [&](int64_t i, W* lu) {
                                W* const x = lu + a.size();
                                load_matrix<T>(rhs, i, b.size(), x);
                                if constexpr (kTriangular) {
                                  load_matrix<T>(matrix, i, a.size(), lu);
                                  if (!triangular_solve(lu, n, lower_, adjoint_, x, b.columns))
                                    return not_invertible("Input matrix");
                                } else {
                                  const Factors<T> factors(matrix, i, n, lu);
                                  if (lu_singular(lu, n)) return not_invertible("Input matrix");
                                  lu_solve(lu, factors.pivots.data(), n, adjoint_, x, b.columns);
                                }
                                store_matrix<T>(x, i, b.size(), *out);
                                return ok_status();
                              });
  }

 private:
  bool adjoint_, lower_;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>, const std::string& prefix = "") {
  constexpr DeviceKind kCpu = DeviceKind::kCpu;
  (registry.kernel<Ts, InverseKernel<Ts>>(prefix + "MatrixInverse", kCpu), ...);
  (registry.kernel<Ts>(prefix + "MatrixDeterminant", kCpu, &determinant<Ts, false>), ...);
  (registry.kernel<Ts, SolveKernel<Ts, false>>(prefix + "MatrixSolve", kCpu), ...);
  (registry.kernel<Ts, SolveKernel<Ts, true>>(prefix + "MatrixTriangularSolve", kCpu), ...);
}
template <class... Ts>
void register_log_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("LogMatrixDeterminant", DeviceKind::kCpu, &determinant<Ts, true>), ...);
}

}  // namespace

void register_solve(Registry& registry) {
  const auto add = [&](OpSpec spec) {
    registry.add(older_matrix_op(spec, type_set_of<RealMatrixTypes>, 13));
    registry.add(spec);
  };
  const std::vector<OpSpec::Type> types = {{"T", type_set_of<MatrixTypes>}};
  add({.name = "MatrixInverse",
       .doc = "The inverses (or those of the adjoints) of square matrices.",
       .inputs = {{"input", "T"}},
       .outputs = {{"output", "T"}},
       .types = types,
       .attrs = {{"adjoint", "bool = false"}},
       .traits = {.cost = 100},
       .shape = square_shape,
       .gradient = inverse_grad});
  add({.name = "MatrixDeterminant",
       .doc = "The determinants of square matrices.",
       .inputs = {{"input", "T"}},
       .outputs = {{"output", "T"}},
       .types = types,
       .traits = {.cost = 1000},
       .shape = determinant_shape,
       .gradient = determinant_grad});
  registry.add({.name = "LogMatrixDeterminant",
                .doc = "The logarithms of the determinants' magnitudes, and their signs.",
                .inputs = {{"input", "T"}},
                .outputs = {{"sign", "T"}, {"log_abs_determinant", "T"}},
                .types = types,
                .traits = {.cost = 1000},
                .shape = determinant_shape,
                .gradient = log_determinant_grad});
  add({.name = "MatrixSolve",
       .doc = "Solves matrix * output = rhs (or with the adjoint) for square matrices.",
       .inputs = {{"matrix", "T"}, {"rhs", "T"}},
       .outputs = {{"output", "T"}},
       .types = types,
       .attrs = {{"adjoint", "bool = false"}},
       .traits = {.cost = 100},
       .shape = solve_shape,
       .gradient = solve_grad});
  add({.name = "MatrixTriangularSolve",
       .doc = "Solves matrix * output = rhs, of a lower or upper triangle.",
       .inputs = {{"matrix", "T"}, {"rhs", "T"}},
       .outputs = {{"output", "T"}},
       .types = types,
       .attrs = {{"lower", "bool = true"}, {"adjoint", "bool = false"}},
       .traits = {.cost = 50},
       .shape = solve_shape,
       .gradient = triangular_grad});
  register_kernels(registry, MatrixTypes());
  register_log_kernels(registry, MatrixTypes());
  register_kernels(registry, RealMatrixTypes(), "Batch");
}

}  // namespace millrace
