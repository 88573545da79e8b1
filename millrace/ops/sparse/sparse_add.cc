// Sums of sparse tensors, with each other and with dense ones.

#include <algorithm>
#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace {
namespace {

Status add_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t a, sparse_rank(c, 0));
  MR_TRY_ASSIGN(const int64_t b, sparse_rank(c, 3));
  MR_TRY(c.with_rank(6, 0).status());
  MR_TRY_ASSIGN(const PartialShape rank, PartialShape{a}.merge(PartialShape{b}));
  MR_TRY_ASSIGN(const PartialShape shape_a, c.input_as_shape(2));
  MR_TRY_ASSIGN(const PartialShape shape_b, c.input_as_shape(5));
  MR_TRY(shape_a.merge(shape_b).status());
  c.set_output(0, PartialShape{PartialShape::kUnknownDim, rank.dim(0)});
  c.set_output(1, PartialShape::of_rank(1));
  c.set_output(2, rank);
  return ok_status();
}

Status add_grad(GradientContext& g) {
  const std::vector<Expr> made =
      call_multi("SparseAddGrad", {g.gradient(1), g.input(0), g.input(3), g.output(0)});
  if (made.empty()) return g.builder().status();
  g.set(1, made[0]);
  g.set(4, made[1]);
  return ok_status();
}

// The elements of two sparse tensors in one order. `a`, `b`: the element's number, or -1.
struct Pair {
  int64_t a, b;
};
std::vector<Pair> merge(std::span<const int64_t> a, int64_t count_a, std::span<const int64_t> b,
                        int64_t count_b, int rank) {
  const std::vector<int64_t> order_a = sorted_order(a, rank, count_a);
  const std::vector<int64_t> order_b = sorted_order(b, rank, count_b);
  const auto at = [rank](std::span<const int64_t> indices, int64_t i) {
    return indices.subspan(static_cast<size_t>(i * rank), static_cast<size_t>(rank));
  };
  std::vector<Pair> out;
  size_t i = 0, k = 0;
  while (i < order_a.size() || k < order_b.size()) {
    int compared = i == order_a.size() ? 1 : k == order_b.size() ? -1 : 0;
    if (compared == 0) {
      const auto x = at(a, order_a[i]), y = at(b, order_b[k]);
      const auto [p, q] = std::mismatch(x.begin(), x.end(), y.begin());
      if (p != x.end()) compared = *p < *q ? -1 : 1;
    }
    out.push_back({compared <= 0 ? order_a[i++] : -1, compared >= 0 ? order_b[k++] : -1});
  }
  return out;
}

// The least size of a sum that is kept, from a scalar of a real type.
Result<double> threshold(const Tensor& tensor) {
  if (tensor.rank() != 0) {
    return invalid_argument("The magnitude threshold must be a scalar: got shape ", tensor.shape());
  }
  double out = 0;
  MR_TRY(dispatch<RealTypes>(tensor.dtype(), [&]<class T>() {
    out = static_cast<double>(static_cast<ComputeType<T>>(tensor.data<T>()[0]));
  }));
  return out;
}

template <class T>
double magnitude(T x) {
  if constexpr (kComplex.contains(dtype_of<T>)) {
    return static_cast<double>(std::abs(x));
  } else {
    return std::abs(static_cast<double>(static_cast<ComputeType<T>>(x)));
  }
}

template <class T>
T sum_of(T a, T b) {
  return static_cast<T>(static_cast<SumType<T>>(a) + static_cast<SumType<T>>(b));
}

template <class T>
Status sparse_add(KernelContext& ctx) {
  MR_TRY_ASSIGN(const SparseInput a, SparseInput::read(ctx, 0, "a"));
  MR_TRY_ASSIGN(const SparseInput b, SparseInput::read(ctx, 3, "b"));
  MR_TRY_ASSIGN(const double least, threshold(ctx.input(6)));
  if (a.rank != b.rank) {
    return invalid_argument("Ranks of input tensors must match, but saw ranks: ", a.rank, " and ",
                            b.rank);
  }
  if (!(a.shape == b.shape)) {
    return invalid_argument("Input shapes must match: got ", a.shape, " and ", b.shape);
  }
  std::vector<Pair> pairs = merge(a.indices.span(), a.count, b.indices.span(), b.count, a.rank);
  const T *of_a = a.values->data<T>().data(), *of_b = b.values->data<T>().data();
  std::vector<T> sums;
  sums.reserve(pairs.size());
  size_t kept = 0;
  for (const Pair& pair : pairs) {
    const T sum = pair.b < 0   ? of_a[pair.a]
                  : pair.a < 0 ? of_b[pair.b]
                               : sum_of(of_a[pair.a], of_b[pair.b]);
    if (magnitude(sum) < least) continue;  // NaN stays
    sums.push_back(sum);
    pairs[kept++] = pair;
  }
  const auto count = static_cast<int64_t>(kept);
  MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(0, Shape{count, a.rank}));
  MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, Shape{count}));
  MR_TRY_ASSIGN(Tensor * shape, ctx.allocate_output(2, Shape{a.rank}));
  std::copy(a.shape.dims().begin(), a.shape.dims().end(), shape->mutable_data<int64_t>().begin());
  std::copy(sums.begin(), sums.end(), values->mutable_data<T>().begin());
  int64_t* to = indices->mutable_data<int64_t>().data();
  for (size_t i = 0; i < kept; ++i) {
    const auto index = pairs[i].a < 0 ? b.index(pairs[i].b) : a.index(pairs[i].a);
    to = std::copy(index.begin(), index.end(), to);
  }
  return ok_status();
}

Status add_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape gradients, c.with_rank(0, 1));
  PartialShape rank{PartialShape::kUnknownDim};
  for (int i = 1; i < 4; ++i) {
    MR_TRY_ASSIGN(const PartialShape indices, c.with_rank(i, 2));
    MR_TRY_ASSIGN(rank, rank.merge(PartialShape{indices.dim(1)}));
    if (i < 3) {
      c.set_output(i - 1, PartialShape{indices.dim(0)});
    } else {
      MR_TRY(gradients.merge(PartialShape{indices.dim(0)}).status());
    }
  }
  return ok_status();
}

// The numbers of the sums, handed back as gradients are, tell which sum each element is part of.
Status add_grad_grad(GradientContext& g) {
  OpBuilder& builder = g.builder();
  const Expr one = int32_scalar(builder, 1), count = size_of(g.input(0));
  const std::vector<Expr> numbers = call_multi(
      "SparseAddGrad", {range(one, count + one, one), g.input(1), g.input(2), g.input(3)});
  if (numbers.empty()) return builder.status();
  const Expr sums = concat({numbers[0], numbers[1]}, 0) - one;  // -1 for those that are in none
  const Expr gradients = concat({g.gradient(0), g.gradient(1)}, 0);
  g.set(0, call("UnsortedSegmentSum", {gradients, sums, count}));
  return ok_status();
}

template <class T>
Status sparse_add_grad(KernelContext& ctx) {
  const Tensor& gradients = ctx.input(0);
  Indices indices[3];
  for (int i = 0; i < 3; ++i) {
    if (ctx.input(i + 1).rank() != 2 || ctx.input(i + 1).dim(1) != ctx.input(1).dim(1)) {
      return invalid_argument(
          "a_indices, b_indices and sum_indices must be matrices of as many "
          "columns, got shapes ",
          ctx.input(1).shape(), ", ", ctx.input(2).shape(), " and ", ctx.input(3).shape());
    }
    MR_TRY_ASSIGN(indices[i], Indices::read(ctx, ctx.input(i + 1)));
  }
  const int64_t sums = ctx.input(3).dim(0);
  if (gradients.rank() != 1 || gradients.dim(0) != sums) {
    return invalid_argument("backprop_val_grad must have an element for each of ", sums,
                            " sum_indices, got shape ", gradients.shape());
  }
  const auto rank = static_cast<int>(ctx.input(1).dim(1));
  for (int i = 0; i < 2; ++i) {
    const int64_t count = ctx.input(i + 1).dim(0);
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i, Shape{count}));
    const std::span<T> to = out->mutable_data<T>();
    std::fill(to.begin(), to.end(), T{});
    for (const Pair& pair : merge(indices[i].span(), count, indices[2].span(), sums, rank)) {
      if (pair.a >= 0 && pair.b >= 0) {
        to[static_cast<size_t>(pair.a)] = gradients.data<T>()[static_cast<size_t>(pair.b)];
      }
    }
  }
  return ok_status();
}

Status dense_add_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t rank, sparse_rank(c, 0));
  MR_TRY_ASSIGN(const PartialShape shape, c.input_as_shape(2));
  MR_TRY_ASSIGN(PartialShape out, shape.merge(c.input(3)));
  if (rank >= 0 && out.rank_known() && out.rank() != rank) {
    return invalid_argument("Ranks of the two inputs must match, got ", rank, " and ", out);
  }
  c.set_output(0, std::move(out));
  return ok_status();
}

Status dense_add_grad(GradientContext& g) {
  g.set(1, call("GatherNd", {g.gradient(), g.input(0)}));
  g.set(3, g.gradient());
  return ok_status();
}

template <class T>
Status sparse_dense_add(KernelContext& ctx) {
  MR_TRY_ASSIGN(const SparseInput a, SparseInput::read(ctx, 0, "a"));
  const Tensor& b = ctx.input(3);
  if (!(a.shape == b.shape())) {
    return invalid_argument("The shapes must be equal (no broadcasting is supported): sparse side ",
                            a.shape, " vs dense side ", b.shape());
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, b.shape()));
  const std::span<T> to = out->mutable_data<T>();
  std::copy(b.data<T>().begin(), b.data<T>().end(), to.begin());
  const T* const values = a.values->data<T>().data();
  for (int64_t i = 0; i < a.count; ++i) {
    int64_t place = 0;
    for (int k = 0; k < a.rank; ++k) {
      place = place * a.shape.dim(k) + a.index(i)[static_cast<size_t>(k)];
    }
    T& sum = to[static_cast<size_t>(place)];
    sum = sum_of(sum, values[i]);
  }
  return ok_status();
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("SparseAdd", DeviceKind::kCpu, &sparse_add<Ts>), ...);
  (registry.kernel<Ts>("SparseAddGrad", DeviceKind::kCpu, &sparse_add_grad<Ts>), ...);
  (registry.kernel<Ts>("SparseTensorDenseAdd", DeviceKind::kCpu, &sparse_dense_add<Ts>), ...);
}

}  // namespace

void register_sparse_add(Registry& registry) {
  const OpSpec::Type numbers = {"T", type_set_of<NumberTypes>};
  registry.add(
      {.name = "SparseAdd",
       .doc = "The sum of two sparse tensors, without elements smaller than thresh.",
       .inputs = {{"a_indices", "int64"},
                  {"a_values", "T"},
                  {"a_shape", "host(int64)"},
                  {"b_indices", "int64"},
                  {"b_values", "T"},
                  {"b_shape", "host(int64)"},
                  {"thresh", "Treal"}},
       .outputs = {{"sum_indices", "int64"}, {"sum_values", "T"}, {"sum_shape", "host(int64)"}},
       .types = {numbers, {"Treal", type_set_of<RealTypes>}},
       .traits = {.cost = 20},
       .shape = add_shape,
       .gradient = add_grad});
  registry.add({.name = "SparseAddGrad",
                .doc = "The gradient of SparseAdd.",
                .inputs = {{"backprop_val_grad", "T"},
                           {"a_indices", "int64"},
                           {"b_indices", "int64"},
                           {"sum_indices", "int64"}},
                .outputs = {{"a_val_grad", "T"}, {"b_val_grad", "T"}},
                .types = {numbers},
                .traits = {.cost = 20},
                .shape = add_grad_shape,
                .gradient = add_grad_grad});
  registry.add({.name = "SparseTensorDenseAdd",
                .doc = "The sum of a sparse tensor and a dense one of its shape.",
                .inputs = {{"a_indices", "Tindices"},
                           {"a_values", "T"},
                           {"a_shape", "host(Tindices)"},
                           {"b", "T"}},
                .outputs = {{"output", "T"}},
                .types = {numbers, {"Tindices", type_set_of<IndexTypes>}},
                .traits = {.cost = 2},
                .shape = dense_add_shape,
                .gradient = dense_add_grad});
  register_kernels(registry, NumberTypes());
}

}  // namespace millrace
