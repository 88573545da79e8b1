// A sparse matrix times a dense one.

#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace {
namespace {

Status matmul_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool adjoint_a, c.attr<bool>("adjoint_a"));
  MR_TRY_ASSIGN(const bool adjoint_b, c.attr<bool>("adjoint_b"));
  MR_TRY_ASSIGN(const int64_t rank, sparse_rank(c, 0));
  if (rank >= 0 && rank != 2) {
    return invalid_argument("Tensor 'a_shape' must have 2 elements, got ", rank);
  }
  MR_TRY_ASSIGN(PartialShape a, c.input_as_shape(2));
  if (!a.rank_known()) a = PartialShape::of_rank(2);
  MR_TRY_ASSIGN(const PartialShape b, c.with_rank(3, 2));
  const PartialShape inner_a{a.dim(adjoint_a ? 0 : 1)}, inner_b{b.dim(adjoint_b ? 1 : 0)};
  if (!inner_a.merge(inner_b).ok()) {
    return invalid_argument("Dimensions must be equal, but are ", inner_a.dim(0), " and ",
                            inner_b.dim(0), ": a is ", a, ", b is ", b);
  }
  c.set_output(0, PartialShape{a.dim(adjoint_a ? 1 : 0), b.dim(adjoint_b ? 0 : 1)});
  return ok_status();
}

Expr conjugate(Expr x) { return kComplex.contains(x.dtype()) ? call("Conj", {x}) : x; }

// Of an element of a: the product of the row of the output's gradient and the row of b that it
// joins.
Status matmul_grad(GradientContext& g) {
  MR_TRY_ASSIGN(const bool adjoint_a, g.attr<bool>("adjoint_a"));
  MR_TRY_ASSIGN(const bool adjoint_b, g.attr<bool>("adjoint_b"));
  OpBuilder& builder = g.builder();
  const Expr zero = int32_scalar(builder, 0), one = int32_scalar(builder, 1);
  const Expr swap = int32_vector(builder, {1, 0});
  const Expr b = g.input(3), dy = g.gradient();
  const Expr rows_of_b = adjoint_b ? conjugate(transpose(b, swap)) : b;
  const std::vector<Expr> at = call_multi("Unpack", {g.input(0)}, {{"num", 2}, {"axis", 1}});
  if (at.empty()) return builder.status();
  const Expr of_dy = call("GatherV2", {dy, at[adjoint_a ? 1 : 0], zero});
  const Expr of_b = call("GatherV2", {rows_of_b, at[adjoint_a ? 0 : 1], zero});
  g.set(1, sum(adjoint_a ? conjugate(of_dy) * of_b : of_dy * conjugate(of_b), one));
  const Expr db = call("SparseTensorDenseMatMul", {g.input(0), g.input(1), g.input(2), dy},
                       {{"adjoint_a", !adjoint_a}});
  g.set(3, adjoint_b ? conjugate(transpose(db, swap)) : db);
  return ok_status();
}

template <class T>
T conjugated(T x, bool yes) {
  if constexpr (kComplex.contains(dtype_of<T>)) {
    return yes ? std::conj(x) : x;
  } else {
    return x;
  }
}

template <class T>
class SparseDenseMatMul : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool adjoint_a, node.attr<bool>("adjoint_a"));
    MR_TRY_ASSIGN(const bool adjoint_b, node.attr<bool>("adjoint_b"));
    return std::make_unique<SparseDenseMatMul>(adjoint_a, adjoint_b);
  }
  SparseDenseMatMul(bool adjoint_a, bool adjoint_b)
      : adjoint_a_(adjoint_a), adjoint_b_(adjoint_b) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const SparseInput a, SparseInput::read(ctx, 0, "a"));
    const Tensor& b = ctx.input(3);
    if (a.rank != 2 || b.rank() != 2) {
      return invalid_argument("Tensor 'a_shape' must have 2 elements and b be a matrix, got ",
                              a.shape, " and ", b.shape());
    }
    const int row = adjoint_a_ ? 1 : 0;
    const int64_t inner = b.dim(adjoint_b_ ? 1 : 0), columns = b.dim(adjoint_b_ ? 0 : 1);
    if (a.shape.dim(1 - row) != inner) {
      return invalid_argument(
          "Cannot multiply A and B because inner dimension does not match: ", a.shape.dim(1 - row),
          " vs. ", inner, ".  Did you forget a transpose?  Dimensions of A: ", a.shape,
          ".  Dimensions of B: ", b.shape());
    }
    MR_TRY_ASSIGN(const Shape shape, Shape::make(std::vector<int64_t>{a.shape.dim(row), columns}));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    MR_TRY_ASSIGN(Tensor sums, compute_buffer<T>(ctx, *out));
    using C = ComputeType<T>;
    C* const to = sums.template mutable_data<C>().data();
    std::fill_n(to, sums.num_elements(), C{});
    const T* const values = a.values->template data<T>().data();
    const T* const right = b.template data<T>().data();
    // Each thread has columns of its own, so that all elements are added in their order.
    const int64_t step = adjoint_b_ ? inner : 1, stride = adjoint_b_ ? 1 : columns;
    ctx.parallel_for(columns, static_cast<double>(a.count), [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < a.count; ++i) {
        const std::span<const int64_t> at = a.index(i);
        const C factor = conjugated(static_cast<C>(values[i]), adjoint_a_);
        C* const target = to + at[static_cast<size_t>(row)] * columns;
        const T* const from = right + at[static_cast<size_t>(1 - row)] * stride;
        for (int64_t k = begin; k < end; ++k) {
          add_product(target[k], factor, conjugated(static_cast<C>(from[k * step]), adjoint_b_));
        }
      }
    });
    finish_output<T>(ctx, sums, *out);
    return ok_status();
  }

 private:
  // Integers wrap.
  template <class C>
  static void add_product(C& sum, C x, C y) {
    using S = SumType<C>;
    sum = static_cast<C>(static_cast<S>(sum) + static_cast<S>(x) * static_cast<S>(y));
  }

  const bool adjoint_a_, adjoint_b_;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel({.op = "SparseTensorDenseMatMul",
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &SparseDenseMatMul<Ts>::make}),
   ...);
}

}  // namespace

void register_sparse_dense_matmul(Registry& registry) {
  registry.add({.name = "SparseTensorDenseMatMul",
                .doc = "A sparse matrix times a dense one.",
                .inputs = {{"a_indices", "Tindices"},
                           {"a_values", "T"},
                           {"a_shape", "host(int64)"},
                           {"b", "T"}},
                .outputs = {{"product", "T"}},
                .types = {{"T", type_set_of<NumberTypes>},
                          {"Tindices", type_set_of<IndexTypes>, DType::kInt64}},
                .attrs = {{"adjoint_a", "bool = false"}, {"adjoint_b", "bool = false"}},
                .traits = {.cost = 50},
                .shape = matmul_shape,
                .gradient = matmul_grad});
  register_kernels(registry, NumberTypes());
}

}  // namespace millrace
