#include <memory>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/linalg/gemm.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using MatMulTypes =
    ConcatTypes<FloatingTypes, TypeList<int32_t, int64_t, uint32_t, uint64_t>, ComplexTypes>;

// "[2,3] (transposed)".
std::string operand(const std::string& shape, bool transposed) {
  return transposed ? shape + " (transposed)" : shape;
}

Status matmul_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool transpose_a, c.attr<bool>("transpose_a"));
  MR_TRY_ASSIGN(const bool transpose_b, c.attr<bool>("transpose_b"));
  MR_TRY_ASSIGN(const PartialShape a, c.with_rank(0, 2));
  MR_TRY_ASSIGN(const PartialShape b, c.with_rank(1, 2));
  const int64_t inner_a = a.dim(transpose_a ? 0 : 1), inner_b = b.dim(transpose_b ? 1 : 0);
  if (inner_a >= 0 && inner_b >= 0 && inner_a != inner_b) {
    return invalid_argument("Dimensions must be equal, but are ", inner_a, " and ", inner_b,
                            ": inner dimensions differ: ", operand(a.to_string(), transpose_a),
                            " x ", operand(b.to_string(), transpose_b));
  }
  c.set_output(0, {a.dim(transpose_a ? 1 : 0), b.dim(transpose_b ? 0 : 1)});
  return ok_status();
}

// With z = a b: da = dz b^H, db = a^H dz; a transposed factor gets the transposed gradient.
Status matmul_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool ta, c.attr<bool>("transpose_a"));
  MR_TRY_ASSIGN(const bool tb, c.attr<bool>("transpose_b"));
  const auto conjugate = [](Expr x) {
    return kComplex.contains(x.dtype()) ? call("Conj", {x}) : x;
  };
  const Expr a = conjugate(c.input(0)), b = conjugate(c.input(1)), dz = c.gradient();
  c.set(0, ta ? matmul(b, dz, tb, true) : matmul(dz, b, false, !tb));
  c.set(1, tb ? matmul(dz, a, true, ta) : matmul(a, dz, !ta, false));
  return ok_status();
}

template <class T, bool kReference>
class MatMulKernel final : public Kernel {
 public:
  MatMulKernel(bool transpose_a, bool transpose_b)
      : transpose_a_(transpose_a), transpose_b_(transpose_b) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool transpose_a, node.attr<bool>("transpose_a"));
    MR_TRY_ASSIGN(const bool transpose_b, node.attr<bool>("transpose_b"));
    return std::unique_ptr<Kernel>(std::make_unique<MatMulKernel>(transpose_a, transpose_b));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 2));
    MR_TRY(expect_rank(ctx, 1, 2));
    const Tensor &a = ctx.input(0), &b = ctx.input(1);
    const int64_t m = a.dim(transpose_a_ ? 1 : 0), k = a.dim(transpose_a_ ? 0 : 1);
    const int64_t n = b.dim(transpose_b_ ? 0 : 1);
    if (k != b.dim(transpose_b_ ? 1 : 0)) {
      return invalid_argument("Matrix size-incompatible, inner dimensions differ: ",
                              operand(a.shape().to_string(), transpose_a_), " x ",
                              operand(b.shape().to_string(), transpose_b_));
    }
    const int64_t dims[] = {m, n};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (DeviceEngine* const device = device_engine(ctx)) {
      return device->matmul(
          ctx, out->dtype(),
          {.m = m, .n = n, .k = k, .transpose_a = transpose_a_, .transpose_b = transpose_b_},
          a.raw(), b.raw(), out->mutable_raw());
    }
    auto left = MatrixView<T>::of(a.data<T>().data(), a.dim(1));
    auto right = MatrixView<T>::of(b.data<T>().data(), b.dim(1));
    if (transpose_a_) left = left.transposed();
    if (transpose_b_) right = right.transposed();
    T* const c = out->mutable_data<T>().data();
    if constexpr (kReference) {
      matmul_reference(m, n, k, left, right, c);
      return ok_status();
    } else {
      return matmul(m, n, k, left, right, c, ContextParallel{ctx});
    }
  }

 private:
  bool transpose_a_;
  bool transpose_b_;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel({.op = "MatMul",
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &MatMulKernel<Ts, false>::make,
                    .priority = 1}),
   ...);
  (registry.kernel({.op = "MatMul",
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &MatMulKernel<Ts, true>::make,
                    .label = "reference"}),
   ...);
}

}  // namespace

void register_matmul(Registry& registry) {
  registry.add({.name = "MatMul",
                .doc = "The product of two matrices, either of which may be transposed first.",
                .inputs = {{"a", "T"}, {"b", "T"}},
                .outputs = {{"product", "T"}},
                .types = {{"T", type_set_of<MatMulTypes>}},
                .attrs = {{"transpose_a", "bool = false"}, {"transpose_b", "bool = false"}},
                .traits = {.cost = 50, .summed_by = "_SumOfMatMul", .filter_channels = 1},
                .shape = matmul_shape,
                .gradient = matmul_grad});
  register_kernels(registry, MatMulTypes());
}

}  // namespace millrace
