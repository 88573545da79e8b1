#include <algorithm>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/matrix_kernel.h"
#include "millrace/tensor/dispatch.h"

// Cholesky and CholeskyGrad. Only the lower triangles of inputs are read; gradients are symmetric.

namespace millrace {
namespace {

using RealMatrixTypes = TypeList<float, double>;
using MatrixTypes = TypeList<float, double, Complex64, Complex128>;

Status cholesky_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, square_matrices(c, 0));
  for (int i = 1; i < c.num_inputs(); ++i) {
    MR_TRY_ASSIGN(shape, shape.merge(c.input(i)));
  }
  c.set_output(0, std::move(shape));
  return ok_status();
}

// I. Murray, "Differentiation of the Cholesky decomposition": with F the lower triangle and half
// the diagonal of L^H G, the gradient is the symmetric part of L^-H F L^-1.
Status cholesky_grad(GradientContext& c) {
  const Expr l = c.output(0), g = c.gradient();
  if (!l.valid()) return ok_status();
  const auto product = [](Expr a, Expr b, bool adj_a, bool adj_b) {
    return call("BatchMatMulV2", {a, b}, {{"adj_x", adj_a}, {"adj_y", adj_b}});
  };
  const Expr all = c.builder().constant(Tensor::scalar<int64_t>(-1));
  const Expr none = c.builder().constant(Tensor::scalar<int64_t>(0));
  const auto lower = [&](Expr m) { return call("MatrixBandPart", {m, all, none}); };
  const Expr middle = product(l, lower(g), true, false);
  const Expr f = lower(middle) - call("MatrixBandPart", {middle, none, none}) * 0.5;
  const Expr inverse = call("MatrixInverse", {l});
  const Expr s = product(product(inverse, f, true, false), inverse, false, false);
  // F^H between the same gives the adjoint.
  const Expr adjoint = product(product(inverse, f, true, true), inverse, false, false);
  c.set(0, (s + adjoint) * 0.5);
  return ok_status();
}

template <class T>
Status cholesky(KernelContext& ctx) {
  using W = WideNumber<T>;
  const Tensor& input = ctx.input(0);
  MR_TRY_ASSIGN(const Matrices m, read_matrices(input, true));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, input.shape()));
  if (out->num_elements() == 0) return ok_status();
  const int64_t n = m.rows;
  return for_each_matrix<W>(ctx, m.count, n * n, cubic_cost(n), [&](int64_t i, W* a) {
    load_matrix<T>(input, i, n * n, a);
    if (!cholesky_factor(a, n)) {
      return invalid_argument(
          "Cholesky decomposition was not successful. The input might not be valid.");
    }
    store_matrix<T>(a, i, n * n, *out);
    return ok_status();
  });
}

// The formula of the rule, in place.
template <class T>
Status cholesky_grad_kernel(KernelContext& ctx) {
  const Tensor &l_tensor = ctx.input(0), &grad = ctx.input(1);
  MR_TRY_ASSIGN(const Matrices m, read_matrices(l_tensor, true));
  MR_TRY(expect_same_shape(ctx, 1, 0));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, l_tensor.shape()));
  if (out->num_elements() == 0) return ok_status();
  const int64_t n = m.rows;
  return for_each_matrix<double>(ctx, m.count, 3 * n * n, 3 * cubic_cost(n),
                                 [&](int64_t i, double* l) {
                                   double* const g = l + n * n;
                                   double* const f = g + n * n;
                                   load_matrix<T>(l_tensor, i, n * n, l);
                                   load_matrix<T>(grad, i, n * n, g);
                                   for (int64_t r = 0; r < n; ++r) {
                                     for (int64_t c = 0; c < n; ++c) {
                                       double sum = 0;
                                       for (int64_t k = std::max(r, c); k < n; ++k)
                                         sum += l[k * n + r] * g[k * n + c];
                                       f[r * n + c] = r > c ? sum : r == c ? sum / 2 : 0;
                                     }
                                   }
                                   // F becomes L^-T F, and its transpose L^-T F^T L^-1.
                                   const auto transpose = [&] {
                                     for (int64_t r = 0; r < n; ++r) {
                                       for (int64_t c = 0; c < r; ++c)
                                         std::swap(f[r * n + c], f[c * n + r]);
                                     }
                                   };
                                   bool solved = triangular_solve(l, n, true, true, f, n);
                                   transpose();
                                   solved = solved && triangular_solve(l, n, true, true, f, n);
                                   if (!solved)
                                     return invalid_argument("l must have no zero on its diagonal");
                                   for (int64_t r = 0; r < n; ++r) {
                                     for (int64_t c = 0; c < n; ++c)
                                       g[r * n + c] = (f[r * n + c] + f[c * n + r]) / 2;
                                   }
                                   store_matrix<T>(g, i, n * n, *out);
                                   return ok_status();
                                 });
}

template <class... Ts>
void register_kernels(Registry& registry, const char* op, TypeList<Ts...>) {
  (registry.kernel<Ts>(op, DeviceKind::kCpu, &cholesky<Ts>), ...);
}
template <class... Ts>
void register_grad_kernels(Registry& registry, const char* op, TypeList<Ts...>) {
  (registry.kernel<Ts>(op, DeviceKind::kCpu, &cholesky_grad_kernel<Ts>), ...);
}

}  // namespace

void register_cholesky(Registry& registry) {
  OpSpec spec = {.name = "Cholesky",
                 .doc = "L with L L^H = input, of symmetric positive definite matrices.",
                 .inputs = {{"input", "T"}},
                 .outputs = {{"output", "T"}},
                 .types = {{"T", type_set_of<MatrixTypes>}},
                 .traits = {.cost = 100},
                 .shape = cholesky_shape,
                 .gradient = cholesky_grad};
  registry.add(older_matrix_op(spec, type_set_of<RealMatrixTypes>, 13));
  registry.add(spec);
  OpSpec grad = {.name = "CholeskyGrad",
                 .doc = "The gradient of Cholesky, from its output l.",
                 .inputs = {{"l", "T"}, {"grad", "T"}},
                 .outputs = {{"output", "T"}},
                 .types = {{"T", type_set_of<RealMatrixTypes>}},
                 .traits = {.cost = 300},
                 .shape = cholesky_shape,
                 .no_gradient = "has no second derivative in TensorFlow either"};
  registry.add(older_matrix_op(grad, type_set_of<RealMatrixTypes>, 13));
  registry.add(grad);
  register_kernels(registry, "Cholesky", MatrixTypes());
  register_kernels(registry, "BatchCholesky", RealMatrixTypes());
  register_grad_kernels(registry, "CholeskyGrad", RealMatrixTypes());
  register_grad_kernels(registry, "BatchCholeskyGrad", RealMatrixTypes());
}

}  // namespace millrace
