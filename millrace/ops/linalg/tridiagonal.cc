// TridiagonalMatMul and TridiagonalSolve: products with, and systems of, matrices that have a
// superdiagonal, a diagonal and a subdiagonal.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/matrix_kernel.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using MatrixTypes = TypeList<float, double, Complex64, Complex128>;

// The superdiagonal, diagonal and subdiagonal of an n x n matrix. Row i has below[i], at[i] and
// above[i] in columns i - 1, i and i + 1; below[0] and above[n - 1] are not read.
template <class W>
struct Diagonals {
  const W *above, *at, *below;
};

// X such that A X = B over `b` [n, columns], by Thomas's algorithm. False where a pivot is zero.
// `upper` is scratch of n.
template <class W>
bool solve_without_pivots(const Diagonals<W>& a, int64_t n, W* upper, W* b, int64_t columns) {
  for (int64_t i = 0; i < n; ++i) {
    W pivot = a.at[i];
    if (i > 0) pivot -= a.below[i] * upper[i - 1];
    if (pivot == W{}) return false;
    upper[i] = i + 1 < n ? a.above[i] / pivot : W{};
    for (int64_t c = 0; c < columns; ++c) {
      W& x = b[i * columns + c];
      if (i > 0) x -= a.below[i] * b[(i - 1) * columns + c];
      x /= pivot;
    }
  }
  for (int64_t i = n - 2; i >= 0; --i) {
    for (int64_t c = 0; c < columns; ++c) {
      b[i * columns + c] -= upper[i] * b[(i + 1) * columns + c];
    }
  }
  return true;
}

// The same by Gauss's elimination with the larger of two rows as pivot, which adds a second
// superdiagonal. `u` is scratch of 3 n: the rows of the upper triangle. `tiny` stands for a pivot
// that is zero.
template <class W>
bool solve_with_pivots(const Diagonals<W>& a, int64_t n, double tiny, W* u, W* b, int64_t columns) {
  const auto row = [&](int64_t i) { return u + 3 * i; };
  if (n == 0) return true;
  row(0)[0] = a.at[0];
  row(0)[1] = n > 1 ? a.above[0] : W{};
  row(0)[2] = W{};
  for (int64_t i = 0; i + 1 < n; ++i) {
    W* const here = row(i);
    W* const next = row(i + 1);
    next[0] = a.below[i + 1];  // in the column of here[0]
    next[1] = a.at[i + 1];
    next[2] = i + 2 < n ? a.above[i + 1] : W{};
    if (std::abs(next[0]) > std::abs(here[0])) {
      std::swap_ranges(here, here + 3, next);
      std::swap_ranges(b + i * columns, b + (i + 1) * columns, b + (i + 1) * columns);
    }
    if (here[0] == W{}) here[0] = tiny;
    if (here[0] == W{}) return false;
    const W factor = next[0] / here[0];
    next[0] = next[1] - factor * here[1];
    next[1] = next[2] - factor * here[2];
    next[2] = W{};
    for (int64_t c = 0; c < columns; ++c) b[(i + 1) * columns + c] -= factor * b[i * columns + c];
  }
  if (row(n - 1)[0] == W{}) row(n - 1)[0] = tiny;
  if (row(n - 1)[0] == W{}) return false;
  for (int64_t i = n - 1; i >= 0; --i) {
    for (int64_t c = 0; c < columns; ++c) {
      W& x = b[i * columns + c];
      for (int64_t k = 1; k <= 2 && i + k < n; ++k) x -= row(i)[k] * b[(i + k) * columns + c];
      x /= row(i)[0];
    }
  }
  return true;
}

Status solve_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape diagonals, c.with_rank_at_least(0, 2));
  MR_TRY_ASSIGN(const PartialShape rhs, c.with_rank_at_least(1, 2));
  if (!diagonals.rank_known() || !rhs.rank_known()) return ok_status();
  const int rank = diagonals.rank();
  const int64_t three = diagonals.dim(rank - 2);
  if (three >= 0 && three != 3) {
    return invalid_argument("Expected 3 diagonals got ", three);
  }
  // The batch, the rows, and any columns.
  MR_TRY_ASSIGN(
      const PartialShape rows,
      with_last_dims(diagonals, 2, {diagonals.dim(rank - 1)}).merge(with_last_dims(rhs, 1, {})));
  c.set_output(0, with_last_dims(rows, 0, {rhs.dim(rhs.rank() - 1)}));
  return ok_status();
}

bool is_complex(Expr x) { return kComplex.contains(x.dtype()); }
Expr conj(Expr x) { return is_complex(x) ? call("Conj", {x}) : x; }

// Element i becomes element i + 1 along an axis counted from the end, the last one the first.
Expr rolled(Expr x, int32_t shift, int32_t axis) {
  OpBuilder& builder = *x.builder();
  return call("Roll", {x, int32_scalar(builder, shift), int32_scalar(builder, axis)});
}

// The diagonals of the adjoint matrix: above, at, below. What wraps around is not read.
std::vector<Expr> adjoint(Expr above, Expr at, Expr below) {
  return {rolled(conj(below), -1, -1), conj(at), rolled(conj(above), 1, -1)};
}

// The diagonals, each [..., n], of the product of g [..., n, k] and the adjoint of x [..., n, k].
std::vector<Expr> diagonals_of_product(Expr g, Expr x) {
  OpBuilder& builder = *x.builder();
  const Expr last = int32_scalar(builder, -1), zero = int32_scalar(builder, 0);
  x = conj(x);
  const Expr at = sum(g * x, last);
  const Expr n = call("StridedSlice",
                      {shape_of(at), int32_vector(builder, {-1}), int32_vector(builder, {0}),
                       int32_vector(builder, {1})},
                      {{"shrink_axis_mask", 1}});
  const Expr numbers = range(zero, n, int32_scalar(builder, 1));
  const Expr not_last = cast(less(numbers, n + last), x.dtype());
  const Expr not_first = cast(greater(numbers, zero), x.dtype());
  return {sum(g * rolled(x, -1, -2), last) * not_last, at,
          sum(g * rolled(x, 1, -2), last) * not_first};
}

Status solve_grad(GradientContext& c) {
  const Expr diagonals = c.input(0), x = c.output(0);
  const AttrMap rows = {{"axis", -2}};
  const std::vector<Expr> parts = call_multi("Unpack", {diagonals}, {{"num", 3}, {"axis", -2}});
  if (parts.size() != 3) return c.builder().status();
  const Expr turned = call("Pack", adjoint(parts[0], parts[1], parts[2]), rows);
  const Expr g = call("TridiagonalSolve", {turned, c.gradient()},
                      {{"partial_pivoting", c.attr_value("partial_pivoting")},
                       {"perturb_singular", c.attr_value("perturb_singular")}});
  c.set(1, g);
  c.set(0, -call("Pack", diagonals_of_product(g, x), rows));
  return ok_status();
}

template <class T>
class TridiagonalSolve final : public Kernel {
 public:
  TridiagonalSolve(bool pivots, bool perturb) : pivots_(pivots), perturb_(perturb) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool pivots, node.attr<bool>("partial_pivoting"));
    MR_TRY_ASSIGN(const bool perturb, node.attr<bool>("perturb_singular"));
    if (perturb && !pivots) {
      return invalid_argument("perturb_singular requires partial_pivoting to be true");
    }
    return std::unique_ptr<Kernel>(std::make_unique<TridiagonalSolve>(pivots, perturb));
  }

  Status compute(KernelContext& ctx) const override {
    using W = WideNumber<T>;
    const Tensor &diagonals = ctx.input(0), &rhs = ctx.input(1);
    MR_TRY_ASSIGN(const Matrices a, read_matrices(diagonals, false));
    MR_TRY_ASSIGN(const Matrices b, read_matrices(rhs, false));
    if (a.rows != 3) return invalid_argument("Expected 3 diagonals got ", a.rows);
    const int64_t n = a.columns;
    MR_TRY_ASSIGN(const Shape expected, with_matrix(diagonals.shape(), n, b.columns));
    if (!(rhs.shape() == expected)) {
      return invalid_argument("rhs must have shape ", expected, " for diagonals of ",
                              diagonals.shape(), ", got ", rhs.shape());
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, expected));
    if (out->num_elements() == 0) return ok_status();
    const double cost = static_cast<double>(n) * (static_cast<double>(b.columns) * 4 + 8);
    return for_each_matrix<W>(ctx, a.count, 6 * n + b.size(), cost, [&](int64_t i, W* scratch) {
      W* const x = scratch + 6 * n;
      load_matrix<T>(diagonals, i, a.size(), scratch);
      load_matrix<T>(rhs, i, b.size(), x);
      const Diagonals<W> matrix = {scratch, scratch + n, scratch + 2 * n};
      W* const work = scratch + 3 * n;
      const double tiny = perturb_ ? tiny_pivot(matrix, n) : 0;
      const bool solved = pivots_ ? solve_with_pivots(matrix, n, tiny, work, x, b.columns)
                                  : solve_without_pivots(matrix, n, work, x, b.columns);
      if (!solved) return invalid_argument("The matrix is not invertible: a pivot is zero");
      store_matrix<T>(x, i, b.size(), *out);
      return ok_status();
    });
  }

 private:
  template <class W>
  static double tiny_pivot(const Diagonals<W>& a, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(a.at[i]));
    for (int64_t i = 0; i + 1 < n; ++i) {
      largest = std::max({largest, std::abs(a.above[i]), std::abs(a.below[i + 1])});
    }
    const double epsilon = std::numeric_limits<typename RealPart<T>::Type>::epsilon();
    return largest == 0 ? epsilon : largest * epsilon;
  }

  bool pivots_, perturb_;
};

Status matmul_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape rhs, c.with_rank_at_least(3, 2));
  PartialShape rows = rhs.rank_known() ? with_last_dims(rhs, 2, {1, rhs.dim(rhs.rank() - 2)}) : rhs;
  for (int i = 0; i < 3; ++i) {
    MR_TRY_ASSIGN(const PartialShape diagonal, c.with_rank_at_least(i, 2));
    MR_TRY_ASSIGN(rows, rows.merge(diagonal));
  }
  if (!rhs.rank_known() || !rows.rank_known()) return ok_status();
  c.set_output(0, with_last_dims(rows, 2, {rows.dim(rows.rank() - 1), rhs.dim(rhs.rank() - 1)}));
  return ok_status();
}

Status matmul_grad(GradientContext& c) {
  const Expr g = c.gradient(), row = int32_scalar(c.builder(), -2);
  const std::vector<Expr> parts = diagonals_of_product(g, c.input(3));
  for (int i = 0; i < 3; ++i) c.set(i, expand_dims(parts[static_cast<size_t>(i)], row));
  std::vector<Expr> inputs = adjoint(c.input(0), c.input(1), c.input(2));
  inputs.push_back(g);
  c.set(3, call("TridiagonalMatMul", inputs));
  return ok_status();
}

template <class T>
Status tridiagonal_matmul(KernelContext& ctx) {
  const Tensor& rhs = ctx.input(3);
  MR_TRY_ASSIGN(const Matrices b, read_matrices(rhs, false));
  MR_TRY_ASSIGN(const Shape expected, with_matrix(rhs.shape(), 1, b.rows));
  for (int i = 0; i < 3; ++i) {
    if (ctx.input(i).shape() == expected) continue;
    return invalid_argument("a diagonal must have shape ", expected, " for rhs of ", rhs.shape(),
                            ", got ", ctx.input(i).shape());
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, rhs.shape()));
  if (out->num_elements() == 0) return ok_status();
  const T *above = ctx.input(0).data<T>().data(), *at = ctx.input(1).data<T>().data();
  const T *below = ctx.input(2).data<T>().data(), *x = rhs.data<T>().data();
  T* const y = out->mutable_data<T>().data();
  const int64_t n = b.rows, k = b.columns;
  ctx.parallel_for(b.count * n, static_cast<double>(k) * 3 + 5, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t i = r % n;
      for (int64_t j = r * k; j < (r + 1) * k; ++j) {
        T value = at[r] * x[j];
        if (i > 0) value += below[r] * x[j - k];
        if (i + 1 < n) value += above[r] * x[j + k];
        y[j] = value;
      }
    }
  });
  return ok_status();
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  constexpr DeviceKind kCpu = DeviceKind::kCpu;
  (registry.kernel<Ts, TridiagonalSolve<Ts>>("TridiagonalSolve", kCpu), ...);
  (registry.kernel<Ts>("TridiagonalMatMul", kCpu, &tridiagonal_matmul<Ts>), ...);
}

}  // namespace

void register_tridiagonal(Registry& registry) {
  const std::vector<OpSpec::Type> types = {{"T", type_set_of<MatrixTypes>, DType::kDouble}};
  registry.add({.name = "TridiagonalSolve",
                .doc = "Solves A * output = rhs for matrices A of three diagonals.",
                .inputs = {{"diagonals", "T", "[..., 3, n]: above, at and below the diagonal."},
                           {"rhs", "T"}},
                .outputs = {{"output", "T"}},
                .types = types,
                .attrs = {{"partial_pivoting", "bool = true"},
                          {"perturb_singular", "bool = false",
                           "Takes a tiny number for a pivot that is zero."}},
                .traits = {.cost = 20},
                .shape = solve_shape,
                .gradient = solve_grad});
  registry.add({.name = "TridiagonalMatMul",
                .doc = "A * rhs for matrices A of three diagonals, each [..., 1, n].",
                .inputs = {{"superdiag", "T"}, {"maindiag", "T"}, {"subdiag", "T"}, {"rhs", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", type_set_of<MatrixTypes>}},
                .traits = {.cost = 3},
                .shape = matmul_shape,
                .gradient = matmul_grad});
  register_kernels(registry, MatrixTypes());
}

}  // namespace millrace
