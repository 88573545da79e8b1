// MatrixSquareRoot and MatrixLogarithm, and Eig, the eigenvalues and eigenvectors of any square
// matrix: all of a triangular matrix that A is similar to.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/matrix_kernel.h"
#include "millrace/ops/linalg/schur.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using MatrixTypes = TypeList<float, double, Complex64, Complex128>;

Status square_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, square_matrices(c, 0));
  c.set_output(0, std::move(shape));
  return ok_status();
}

template <class T>
void load(const Tensor& tensor, int64_t i, int64_t size, Complex128* to) {
  const T* const from = tensor.data<T>().data() + i * size;
  for (int64_t k = 0; k < size; ++k) to[k] = static_cast<WideNumber<T>>(from[k]);
}

// Real matrices have the real part.
template <class T>
void store(const Complex128* from, int64_t size, T* to) {
  for (int64_t k = 0; k < size; ++k) {
    if constexpr (is_complex_v<T>) {
      to[k] = static_cast<T>(from[k]);
    } else {
      to[k] = static_cast<T>(from[k].real());
    }
  }
}

Status not_converging() {
  return invalid_argument("the eigenvalues of the matrix were not found: it is not finite");
}

// Whether numbers are real but for rounding.
bool is_real(const Complex128* x, int64_t size) {
  double real = 0, imaginary = 0;
  for (int64_t k = 0; k < size; ++k) {
    real = std::max(real, std::abs(x[k].real()));
    imaginary = std::max(imaginary, std::abs(x[k].imag()));
  }
  return imaginary <= 1e-6 * real;
}

// to = Q T Q^H; `scratch` has n^2.
void transform_back(const Complex128* q, const Complex128* t, int64_t n, Complex128* scratch,
                    Complex128* to) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      Complex128 sum = {};
      for (int64_t k = 0; k <= j; ++k) sum += q[i * n + k] * t[k * n + j];
      scratch[i * n + j] = sum;
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      Complex128 sum = {};
      for (int64_t k = 0; k < n; ++k) sum += scratch[i * n + k] * std::conj(q[j * n + k]);
      to[i * n + j] = sum;
    }
  }
}

template <class T, bool kLog>
Status matrix_function(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  MR_TRY_ASSIGN(const Matrices m, read_matrices(input, true));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, input.shape()));
  if (out->num_elements() == 0) return ok_status();
  const int64_t n = m.rows, size = m.size();
  T* const result = out->mutable_data<T>().data();
  return for_each_matrix<Complex128>(
      ctx, m.count, 4 * size, 60 * cubic_cost(n), [&](int64_t i, Complex128* t) {
        Complex128* const q = t + size;
        load<T>(input, i, size, t);
        if (!schur(t, n, q)) return not_converging();
        if constexpr (kLog) {
          triangular_log(t, n, t + 2 * size);
        } else {
          triangular_sqrt(t, n);
        }
        transform_back(q, t, n, t + 2 * size, t + 3 * size);
        if constexpr (!is_complex_v<T>) {
          if (!is_real(t + 3 * size, size)) {
            std::fill_n(result + i * size, size, std::numeric_limits<T>::quiet_NaN());
            return ok_status();
          }
        }
        store(t + 3 * size, size, result + i * size);
        return ok_status();
      });
}

// Y Y = A, so dA = X with Y^H X + X Y^H = G: a linear system of n^2 unknowns, X row by row.
Status sqrt_grad(GradientContext& c) {
  const Expr y = c.output(0), g = c.gradient();
  OpBuilder& builder = c.builder();
  const Expr shape = shape_of(y);
  const auto slice = [&](int32_t begin, int32_t end, int64_t end_mask) {
    return call("StridedSlice",
                {shape, int32_vector(builder, {begin}), int32_vector(builder, {end}),
                 int32_vector(builder, {1})},
                {{"begin_mask", begin == 0 ? 1 : 0}, {"end_mask", end_mask}});
  };
  const Expr batch = slice(0, -2, 0), n = slice(-1, 0, 1);
  const Expr nn = n * n;
  const Expr one = int32_vector(builder, {1});
  // The identity, [n, n].
  const Expr scalar_n = reshape(n, int32_vector(builder, {}));
  const Expr numbers = range(int32_scalar(builder, 0), scalar_n, int32_scalar(builder, 1));
  const Expr identity =
      call("OneHot", {numbers, scalar_n, constant_like(y, 1), constant_like(y, 0)});
  const Expr adjoint = call("BatchMatMulV2", {y, identity}, {{"adj_x", true}});
  // Kronecker products [..., n, n, n, n]: Y^H on rows, and the transpose of Y^H on columns.
  const auto spread = [&](Expr x, const std::vector<Expr>& dims) {
    return reshape(x, concat(dims, 0));
  };
  const Expr left = spread(adjoint, {batch, n, one, n, one});
  const Expr right = spread(y, {batch, one, n, one, n});
  const Expr eye_left = spread(identity, {n, one, n, one});
  const Expr eye_right = spread(identity, {one, n, one, n});
  const Expr conjugate = kComplex.contains(y.dtype()) ? call("Conj", {right}) : right;
  const Expr system = spread(left * eye_right + conjugate * eye_left, {batch, nn, nn});
  const Expr x = call("MatrixSolve", {system, spread(g, {batch, nn, one})});
  c.set(0, reshape(x, shape));
  return ok_status();
}

Status eig_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool vectors, c.attr<bool>("compute_v"));
  MR_TRY_ASSIGN(const PartialShape shape, square_matrices(c, 0));
  c.set_output(0, with_last_dims(shape, 1, {}));
  c.set_output(1, vectors ? shape : PartialShape({0}));
  return ok_status();
}

// With V the eigenvectors, W = V^-H, and F[i, j] = 1 / conj(e[j] - e[i]) off the diagonal:
// dA = W (diag(de) + F * (V^H dV - V^H V re(diag(V^H dV)))) V^H.
Status eig_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool vectors, c.attr<bool>("compute_v"));
  if (!vectors) return unimplemented("the gradient of Eig needs compute_v");
  const Expr e = c.output(0), v = c.output(1), last = int32_scalar(c.builder(), -1);
  const auto product = [](Expr a, Expr b, bool adj_a, bool adj_b) {
    return call("BatchMatMulV2", {a, b}, {{"adj_x", adj_a}, {"adj_y", adj_b}});
  };
  Expr middle = call("MatrixDiag", {c.gradient(0)});
  if (c.has_gradient(1)) {
    const Expr dv = product(v, c.gradient(1), true, false);
    const Expr gram = product(v, v, true, false);
    const DType part = e.dtype() == DType::kComplex64 ? DType::kFloat : DType::kDouble;
    const Expr real =
        cast(call("Real", {call("MatrixDiagPart", {dv})}, {{"Tout", part}}), e.dtype());
    const Expr inner = dv - gram * expand_dims(real, int32_scalar(c.builder(), -2));
    const Expr gap = expand_dims(e, int32_scalar(c.builder(), -2)) - expand_dims(e, last);
    const Expr safe = select(equal(gap, zeros_like(gap)), ones_like(gap), gap);
    const Expr f = select(equal(gap, zeros_like(gap)), zeros_like(gap), reciprocal(safe));
    middle = middle + call("Conj", {f}) * inner;
  }
  const Expr right = product(middle, v, false, true);
  Expr g = call("MatrixSolve", {v, right}, {{"adjoint", true}});
  if (!kComplex.contains(c.input_type(0))) g = call("Real", {g}, {{"Tout", c.input_type(0)}});
  if (c.input_type(0) == DType::kComplex64 && e.dtype() == DType::kComplex128) {
    g = cast(g, DType::kComplex64);
  }
  c.set(0, g);
  return ok_status();
}

class EigKernel final : public Kernel {
 public:
  explicit EigKernel(bool vectors) : vectors_(vectors) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool vectors, node.attr<bool>("compute_v"));
    return std::unique_ptr<Kernel>(std::make_unique<EigKernel>(vectors));
  }

  Status compute(KernelContext& ctx) const override {
    return dispatch<MatrixTypes>(ctx.input(0).dtype(), [&]<class T>() {
      return dispatch<ComplexTypes>(ctx.output_type(0),
                                    [&]<class Out>() { return run<T, Out>(ctx); });
    });
  }

 private:
  template <class T, class Out>
  Status run(KernelContext& ctx) const {
    const Tensor& input = ctx.input(0);
    MR_TRY_ASSIGN(const Matrices m, read_matrices(input, true));
    const auto front = static_cast<size_t>(input.rank() - 1);
    MR_TRY_ASSIGN(const Shape values_shape, Shape::make(input.shape().dims().first(front)));
    MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(0, values_shape));
    MR_TRY_ASSIGN(Tensor * vectors, ctx.allocate_output(1, vectors_ ? input.shape() : Shape{0}));
    if (input.num_elements() == 0) return ok_status();
    const int64_t n = m.rows, size = m.size();
    return for_each_matrix<Complex128>(
        ctx, m.count, 3 * size, 60 * cubic_cost(n), [&](int64_t i, Complex128* t) {
          Complex128* const q = vectors_ ? t + size : nullptr;
          load<T>(input, i, size, t);
          if (!schur(t, n, q)) return not_converging();
          Out* const e = values->mutable_data<Out>().data() + i * n;
          for (int64_t k = 0; k < n; ++k) e[k] = static_cast<Out>(t[k * n + k]);
          if (q == nullptr) return ok_status();
          eigenvectors(t, n, q, t + 2 * size);
          store(q, size, vectors->mutable_data<Out>().data() + i * size);
          return ok_status();
        });
  }

  bool vectors_;
};

template <class... Ts>
void register_sqrt(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("MatrixSquareRoot", DeviceKind::kCpu, &matrix_function<Ts, false>), ...);
}
template <class... Ts>
void register_log(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("MatrixLogarithm", DeviceKind::kCpu, &matrix_function<Ts, true>), ...);
}

}  // namespace

void register_matrix_functions(Registry& registry) {
  registry.add(
      {.name = "MatrixSquareRoot",
       .doc = "The principal square roots of square matrices; NaN for a real matrix whose root "
              "is not real.",
       .inputs = {{"input", "T"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", type_set_of<MatrixTypes>}},
       .traits = {.cost = 1000},
       .shape = square_shape,
       .gradient = sqrt_grad});
  registry.add({.name = "MatrixLogarithm",
                .doc = "The principal logarithms of square matrices.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", type_set_of<ComplexTypes>}},
                .traits = {.cost = 1000},
                .shape = square_shape,
                .no_gradient = "has no derivative in TensorFlow either"});
  registry.add({.name = "Eig",
                .doc = "The eigenvalues of square matrices, and eigenvectors of length 1.",
                .inputs = {{"input", "T"}},
                .outputs = {{"e", "Tout"}, {"v", "Tout"}},
                .types = {{"T", type_set_of<MatrixTypes>}, {"Tout", type_set_of<ComplexTypes>}},
                .attrs = {{"compute_v", "bool = true", "Whether eigenvectors are wanted."}},
                .traits = {.cost = 1000},
                .shape = eig_shape,
                .gradient = eig_grad});
  register_sqrt(registry, MatrixTypes());
  register_log(registry, ComplexTypes());
  registry.kernel({.op = "Eig", .factory = EigKernel::make});
}

}  // namespace millrace
