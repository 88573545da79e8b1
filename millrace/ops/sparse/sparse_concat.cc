#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/element.h"
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace {
namespace {

SparseParts parts_of(int i, int n) { return {i, n + i, 2 * n + i}; }

Result<int> axis_of(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) {
    return invalid_argument("Concat dimension must be in range [", -rank, ", ", rank, "), got ",
                            axis);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Status concat_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t axis, c.attr<int64_t>("concat_dim"));
  const int n = c.num_inputs() / 3;
  int64_t elements = 0;
  PartialShape rank{PartialShape::kUnknownDim};
  for (int i = 0; i < n; ++i) {
    MR_TRY_ASSIGN(const PartialShape indices, sparse_indices_shape(c, parts_of(i, n)));
    MR_TRY_ASSIGN(rank, rank.merge(PartialShape{indices.dim(1)}));
    const bool known = elements >= 0 && indices.dim_known(0);
    if (!known || __builtin_add_overflow(elements, indices.dim(0), &elements)) {
      elements = PartialShape::kUnknownDim;
    }
  }
  if (rank.dim_known(0)) MR_TRY(axis_of(axis, rank.dim(0)).status());
  c.set_output(0, PartialShape{elements, rank.dim(0)});
  c.set_output(1, PartialShape{elements});
  c.set_output(2, rank);
  return ok_status();
}

// Numbers that are joined along with the elements tell where each of these went.
Status concat_grad(GradientContext& g) {
  OpBuilder& builder = g.builder();
  const int n = g.num_inputs() / 3;
  std::vector<Expr> inputs, sizes;
  const Expr zero = int32_scalar(builder, 0), one = int32_scalar(builder, 1);
  for (int i = 0; i < n; ++i) inputs.push_back(g.input(i));
  Expr start = zero;
  for (int i = 0; i < n; ++i) {
    sizes.push_back(size_of(g.input(n + i)));
    const Expr end = start + sizes.back();
    inputs.push_back(range(start, end, one));
    start = end;
  }
  for (int i = 0; i < n; ++i) inputs.push_back(g.input(2 * n + i));
  const std::vector<Expr> joined =
      call_multi("SparseConcat", inputs, {{"concat_dim", g.attr_value("concat_dim")}});
  if (joined.empty()) return builder.status();
  const Expr place = call("InvertPermutation", {joined[1]});
  const Expr gradients = call("GatherV2", {g.gradient(1), place, zero});
  const std::vector<Expr> parts =
      call_multi("SplitV", {gradients, call("Pack", sizes), zero}, {{"num_split", n}});
  for (size_t i = 0; i < parts.size(); ++i) g.set(n + static_cast<int>(i), parts[i]);
  return builder.status();
}

class SparseConcat : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t axis, node.attr<int64_t>("concat_dim"));
    return std::make_unique<SparseConcat>(axis);
  }
  explicit SparseConcat(int64_t axis) : axis_(axis) {}

  Status compute(KernelContext& ctx) const override {
    const int n = ctx.num_inputs() / 3;
    std::vector<SparseInput> inputs;
    int64_t count = 0;
    for (int i = 0; i < n; ++i) {
      MR_TRY_ASSIGN(SparseInput input, SparseInput::read(ctx, parts_of(i, n), "input"));
      count += input.count;
      inputs.push_back(std::move(input));
    }
    const int rank = inputs[0].rank;
    MR_TRY_ASSIGN(const int axis, axis_of(axis_, rank));
    MR_TRY_ASSIGN(const Shape shape, joined_shape(inputs, axis));
    std::vector<int64_t> indices;
    indices.reserve(static_cast<size_t>(count * rank));
    int64_t start = 0;
    for (const SparseInput& input : inputs) {
      for (int64_t i = 0; i < input.count; ++i) {
        const std::span<const int64_t> index = input.index(i);
        indices.insert(indices.end(), index.begin(), index.end());
        indices[indices.size() - static_cast<size_t>(rank - axis)] += start;
      }
      start += input.shape.dim(axis);
    }
    return write(ctx, inputs, indices, shape, count);
  }

 private:
  static Result<Shape> joined_shape(const std::vector<SparseInput>& inputs, int axis) {
    const Shape& first = inputs[0].shape;
    std::vector<int64_t> sizes(first.dims().begin(), first.dims().end());
    for (size_t i = 1; i < inputs.size(); ++i) {
      const Shape& other = inputs[i].shape;
      if (other.rank() != first.rank()) {
        return invalid_argument("Ranks of all input tensors must match: expected ", first.rank(),
                                " but got ", other.rank(), " at position ", i);
      }
      for (int k = 0; k < first.rank(); ++k) {
        int64_t& size = sizes[static_cast<size_t>(k)];
        if (k == axis && __builtin_add_overflow(size, other.dim(k), &size)) {
          return invalid_argument("the sizes along dimension ", k, " are too large to be added");
        }
        if (k != axis && other.dim(k) != size) {
          return invalid_argument("Input shapes must match: expected ", size, " for dimension ", k,
                                  " but got ", other.dim(k), " at position ", i);
        }
      }
    }
    return Shape::make(sizes);
  }

  static Status write(KernelContext& ctx, const std::vector<SparseInput>& inputs,
                      std::span<const int64_t> indices, const Shape& shape, int64_t count) {
    const int rank = shape.rank();
    const std::vector<int64_t> order = sorted_order(indices, rank, count);
    MR_TRY_ASSIGN(Tensor * out_indices, ctx.allocate_output(0, Shape{count, rank}));
    MR_TRY_ASSIGN(Tensor * out_values, ctx.allocate_output(1, Shape{count}));
    MR_TRY_ASSIGN(Tensor * out_shape, ctx.allocate_output(2, Shape{rank}));
    std::copy(shape.dims().begin(), shape.dims().end(), out_shape->mutable_data<int64_t>().begin());
    int64_t* index = out_indices->mutable_data<int64_t>().data();
    for (int64_t i : order) index = std::copy_n(indices.data() + i * rank, rank, index);
    with_element(out_values->dtype(), [&]<class T>() {
      std::vector<const T*> from;
      from.reserve(static_cast<size_t>(count));
      for (const SparseInput& input : inputs) {
        const T* values = static_cast<const T*>(input.values->raw());
        for (int64_t i = 0; i < input.count; ++i) from.push_back(values + i);
      }
      T* to = static_cast<T*>(out_values->mutable_raw());
      for (int64_t i : order) *to++ = *from[static_cast<size_t>(i)];
    });
    return ok_status();
  }

  const int64_t axis_;
};

}  // namespace

void register_sparse_concat(Registry& registry) {
  registry.add({.name = "SparseConcat",
                .doc = "Joins sparse tensors along a dimension that they have; sorted.",
                .inputs = {{"indices", "N*int64"}, {"values", "N*T"}, {"shapes", "host(N*int64)"}},
                .outputs = {{"output_indices", "int64"},
                            {"output_values", "T"},
                            {"output_shape", "host(int64)"}},
                .types = {{"T", kSparseTypes}},
                .attrs = {{"concat_dim", "int"}, {"N", "int >= 2"}},
                .traits = {.cost = 20},
                .shape = concat_shape,
                .gradient = concat_grad});
  registry.kernel<SparseConcat>("SparseConcat", DeviceKind::kCpu);
}

}  // namespace millrace
