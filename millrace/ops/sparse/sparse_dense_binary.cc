// Elements of sparse tensors with the elements of dense ones in the same places. A dense tensor is
// broadcast to the shape of the sparse one.

#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace {
namespace {

Status binary_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape indices, sparse_indices_shape(c, SparseParts::from(0)));
  c.set_output(0, PartialShape{indices.dim(0)});
  return ok_status();
}

// The elements of the dense input in the places of the sparse one.
Expr picked(GradientContext& g) {
  return call("SparseDenseCwiseAdd", {g.input(0), zeros_like(g.input(1)), g.input(2), g.input(3)});
}
// A gradient for each of those elements as one of the dense input.
Expr of_dense(GradientContext& g, Expr gradients) {
  return sum_to_shape_of(call("ScatterNd", {g.input(0), gradients, g.input(2)}), g.input(3));
}
Expr conjugate(Expr x) { return kComplex.contains(x.dtype()) ? call("Conj", {x}) : x; }

Status add_grad(GradientContext& g) {
  g.set(1, g.gradient());
  g.set(3, of_dense(g, g.gradient()));
  return ok_status();
}
Status mul_grad(GradientContext& g) {
  g.set(1, g.gradient() * conjugate(picked(g)));
  g.set(3, of_dense(g, g.gradient() * conjugate(g.input(1))));
  return ok_status();
}
Status div_grad(GradientContext& g) {
  const Expr of_values = call("Div", {g.gradient(), conjugate(picked(g))});
  g.set(1, of_values);
  g.set(3, of_dense(g, -(of_values * conjugate(g.output(0)))));
  return ok_status();
}

// How far apart elements of the dense tensor lie that are neighbours in each dimension of the
// sparse one: 0 where it is broadcast.
Result<std::vector<int64_t>> strides(const Shape& dense, const Shape& sparse) {
  std::vector<int64_t> out(static_cast<size_t>(sparse.rank()), 0);
  bool fits = dense.rank() <= sparse.rank();
  int64_t stride = 1;
  for (int k = 1; fits && k <= dense.rank(); ++k) {
    const int64_t size = dense.dim(dense.rank() - k);
    fits = size == 1 || size == sparse.dim(sparse.rank() - k);
    if (size != 1) out[static_cast<size_t>(sparse.rank() - k)] = stride;
    stride *= size;
  }
  if (!fits) {
    return invalid_argument(
        "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: ",
        sparse, " vs. ", dense);
  }
  return out;
}

struct Add {
  template <class T>
  static Result<T> eval(T a, T b) {
    return static_cast<T>(static_cast<SumType<T>>(a) + static_cast<SumType<T>>(b));
  }
};
struct Mul {
  template <class T>
  static Result<T> eval(T a, T b) {
    return static_cast<T>(static_cast<SumType<T>>(a) * static_cast<SumType<T>>(b));
  }
};
struct Div {
  template <class T>
  static Result<T> eval(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return invalid_argument("Integer division by zero");
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) {  // the least number has no opposite
        return static_cast<T>(SumType<T>{} - static_cast<SumType<T>>(a));
      }
    }
    return static_cast<T>(static_cast<ComputeType<T>>(a) / static_cast<ComputeType<T>>(b));
  }
};

template <class Op, class T>
Status binary_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(const SparseInput sparse, SparseInput::read(ctx, 0, "sp"));
  const Tensor& dense = ctx.input(3);
  MR_TRY_ASSIGN(const std::vector<int64_t> steps, strides(dense.shape(), sparse.shape));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{sparse.count}));
  const T *from = sparse.values->data<T>().data(), *others = dense.data<T>().data();
  T* const to = out->mutable_data<T>().data();
  for (int64_t i = 0; i < sparse.count; ++i) {
    const std::span<const int64_t> at = sparse.index(i);
    int64_t place = 0;
    for (size_t k = 0; k < steps.size(); ++k) place += at[k] * steps[k];
    MR_TRY_ASSIGN(to[i], Op::eval(from[i], others[place]));
  }
  return ok_status();
}

template <class Op, class... Ts>
void add_op(Registry& registry, const char* name, const char* doc, GradientRule gradient,
            TypeList<Ts...>) {
  registry.add({.name = name,
                .doc = doc,
                .inputs = {{"sp_indices", "int64"},
                           {"sp_values", "T"},
                           {"sp_shape", "host(int64)"},
                           {"dense", "T"}},
                .outputs = {{"output", "T", "For each element of the sparse tensor one."}},
                .types = {{"T", type_set_of<NumberTypes>}},
                .traits = {.cost = 5},
                .shape = binary_shape,
                .gradient = gradient});
  (registry.kernel<Ts>(name, DeviceKind::kCpu, &binary_cpu<Op, Ts>), ...);
}

}  // namespace

void register_sparse_dense_binary(Registry& registry) {
  add_op<Add>(registry, "SparseDenseCwiseAdd",
              "The elements of a sparse tensor, each with its element of a dense one added.",
              add_grad, NumberTypes());
  add_op<Mul>(registry, "SparseDenseCwiseMul",
              "The elements of a sparse tensor, each times its element of a dense one.", mul_grad,
              NumberTypes());
  add_op<Div>(registry, "SparseDenseCwiseDiv",
              "The elements of a sparse tensor, each divided by its element of a dense one.",
              div_grad, NumberTypes());
}

}  // namespace millrace
