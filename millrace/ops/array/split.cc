// Ops that cut a tensor into parts along one dimension. Parts along the first share its buffer.

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/strided_copy.h"

namespace millrace {
namespace {

// Sets output `i` to the part of `from` that begins at `begin` of dimension `axis` and is of
// `shape`.
Status cut(KernelContext& ctx, const Tensor& from, int axis, int64_t begin, int64_t size,
           const Shape& shape, int i) {
  int64_t outer = 1, inner = 1;
  for (int k = 0; k < axis; ++k) outer *= from.dim(k);
  for (int k = axis + 1; k < from.rank(); ++k) inner *= from.dim(k);
  if (outer == 1) {
    MR_TRY_ASSIGN(Tensor flat, from.reshaped(Shape{from.dim(axis), inner}));
    MR_TRY_ASSIGN(Tensor part, flat.rows(begin, begin + size).reshaped(shape));
    ctx.set_output(i, std::move(part));
    return ok_status();
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i, shape));
  StridedCopy copy;
  copy.add_dim(outer, from.dim(axis) * inner, size * inner);
  copy.add_dim(size * inner, 1, 1);
  copy.run(ctx, from, begin * inner, *out, 0);
  return ok_status();
}

PartialShape with_dim(PartialShape shape, int axis, int64_t size) {
  shape.set_dim(axis, size);
  return shape;
}

Status split_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank_at_least(1, 1));
  if (!shape.rank_known()) return ok_status();
  PartialShape part = PartialShape::of_rank(shape.rank());
  if (const std::optional<int64_t> dim = c.input_scalar(0)) {
    MR_TRY_ASSIGN(const int axis, normalize_axis(*dim, shape.rank(), "split_dim"));
    const int64_t n = c.num_outputs(), size = shape.dim(axis);
    if (size >= 0 && size % n != 0) {
      return invalid_argument("num_split should evenly divide the dimension: dimension ", axis,
                              " of ", shape, " cannot be split into ", n, " equal parts");
    }
    part = with_dim(shape, axis, size < 0 ? -1 : size / n);
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, part);
  return ok_status();
}

void split_value(ValueContext& c) {
  const PartialValue* value = c.input(1);
  const Result<int64_t> parts = c.attr<int64_t>("num_split");
  if (value == nullptr || value->is_scalar || !parts.ok()) return;
  const int64_t n = static_cast<int64_t>(value->elements.size()) / *parts;
  for (int64_t i = 0; i < *parts; ++i) {
    const auto first = value->elements.begin() + i * n;
    c.set_output(static_cast<int>(i), {.elements = {first, first + n}});
  }
}

// The gradients of all outputs joined again along `axis`.
Expr joined_gradients(GradientContext& g, Expr axis) {
  std::vector<Expr> parts;
  for (int i = 0; i < g.num_outputs(); ++i) parts.push_back(g.gradient(i));
  if (parts.size() == 1) return parts[0];
  parts.push_back(axis);
  return call("ConcatV2", parts);
}

Status split_grad(GradientContext& g) {
  g.set(1, joined_gradients(g, g.input(0)));
  return ok_status();
}

Status split_cpu(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 0));
  MR_TRY_ASSIGN(const int64_t dim, ctx.int_scalar_input(0));
  const Tensor& value = ctx.input(1);
  MR_TRY_ASSIGN(const int axis, normalize_axis(dim, value.rank(), "split_dim"));
  const int64_t n = ctx.num_outputs(), size = value.dim(axis);
  if (size % n != 0) {
    return invalid_argument("num_split should evenly divide the dimension: dimension ", axis,
                            " of ", value.shape(), " cannot be split into ", n, " equal parts");
  }
  MR_TRY_ASSIGN(const Shape shape, value.shape().with_dim(axis, size / n));
  for (int64_t i = 0; i < n; ++i) {
    MR_TRY(cut(ctx, value, axis, i * (size / n), size / n, shape, static_cast<int>(i)));
  }
  return ok_status();
}

// Checks that the sizes add up to `total` (-1: unknown); one size of -1 becomes what is missing. An
// unknown total leaves it -1.
Status complete_sizes(std::span<int64_t> sizes, int64_t total) {
  int64_t sum = 0;
  int64_t* missing = nullptr;
  for (int64_t& size : sizes) {
    if (size == -1 && missing == nullptr) {
      missing = &size;
    } else if (size < 0) {
      return invalid_argument("'size_splits' may hold one -1 and no other negative size, got ",
                              size);
    } else if (__builtin_add_overflow(sum, size, &sum)) {
      return invalid_argument("the sizes of 'size_splits' are too large together");
    }
  }
  if (total < 0) return ok_status();
  if (missing == nullptr ? sum != total : sum > total) {
    return invalid_argument("'size_splits' add up to ", sum, ", the dimension's size is ", total);
  }
  if (missing != nullptr) *missing = total - sum;
  return ok_status();
}

Status split_v_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank_at_least(0, 1));
  MR_TRY_ASSIGN(const PartialShape count, c.with_rank(1, 1));
  MR_TRY(c.with_rank(2, 0).status());
  if (count.dim_known(0) && count.dim(0) != c.num_outputs()) {
    return invalid_argument("'size_splits' must have ", c.num_outputs(), " elements, got ", count);
  }
  if (!shape.rank_known()) return ok_status();
  const std::optional<int64_t> dim = c.input_scalar(2);
  if (!dim) {
    for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::of_rank(shape.rank()));
    return ok_status();
  }
  MR_TRY_ASSIGN(const int axis, normalize_axis(*dim, shape.rank(), "split_dim"));
  std::vector<int64_t> sizes(static_cast<size_t>(c.num_outputs()), -1);
  if (auto known = c.input_vector(1)) {
    MR_TRY(complete_sizes(*known, shape.dim(axis)));
    sizes = std::move(*known);
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, with_dim(shape, axis, sizes[static_cast<size_t>(i)]));
  }
  return ok_status();
}

Status split_v_grad(GradientContext& g) {
  g.set(0, joined_gradients(g, g.input(2)));
  return ok_status();
}

Status split_v_cpu(KernelContext& ctx) {
  const Tensor& value = ctx.input(0);
  MR_TRY(expect_rank(ctx, 2, 0));
  MR_TRY_ASSIGN(const int64_t dim, ctx.int_scalar_input(2));
  MR_TRY_ASSIGN(const int axis, normalize_axis(dim, value.rank(), "split_dim"));
  MR_TRY_ASSIGN(std::vector<int64_t> sizes, ctx.int_vector_input(1));
  if (ctx.input(1).rank() != 1 || static_cast<int>(sizes.size()) != ctx.num_outputs()) {
    return invalid_argument("'size_splits' must be a vector of ", ctx.num_outputs(),
                            " elements, got shape ", ctx.input(1).shape());
  }
  MR_TRY(complete_sizes(sizes, value.dim(axis)));
  int64_t begin = 0;
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    const int64_t size = sizes[static_cast<size_t>(i)];
    MR_TRY_ASSIGN(const Shape shape, value.shape().with_dim(axis, size));
    MR_TRY(cut(ctx, value, axis, begin, size, shape, i));
    begin += size;
  }
  return ok_status();
}

Status unpack_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t given, c.attr<int64_t>("axis"));
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank_at_least(0, 1));
  if (!shape.rank_known()) return ok_status();
  MR_TRY_ASSIGN(const int axis, normalize_axis(given, shape.rank(), "axis"));
  if (shape.dim_known(axis) && shape.dim(axis) != c.num_outputs()) {
    return invalid_argument("dimension ", axis, " of ", shape, " must have size ", c.num_outputs(),
                            " (num)");
  }
  PartialShape part = PartialShape::scalar();
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) part.add_dim(shape.dim(i));
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, part);
  return ok_status();
}

void unpack_value(ValueContext& c) {
  const PartialValue* value = c.input(0);
  if (value == nullptr || value->is_scalar) return;
  for (size_t i = 0; i < value->elements.size(); ++i) {
    c.set_output(static_cast<int>(i), {.is_scalar = true, .elements = {value->elements[i]}});
  }
}

Status unpack_grad(GradientContext& g) {
  std::vector<Expr> parts;
  for (int i = 0; i < g.num_outputs(); ++i) parts.push_back(g.gradient(i));
  // Without parts the tensor is empty, and so is its gradient.
  g.set(0, parts.empty() ? zeros_like(g.input(0))
                         : call("Pack", parts, {{"axis", g.attr_value("axis")}}));
  return ok_status();
}

class Unpack : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t axis, node.attr<int64_t>("axis"));
    return std::make_unique<Unpack>(axis);
  }
  explicit Unpack(int64_t axis) : axis_(axis) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& value = ctx.input(0);
    MR_TRY_ASSIGN(const int axis, normalize_axis(axis_, value.rank(), "axis"));
    if (value.dim(axis) != ctx.num_outputs()) {
      return invalid_argument("dimension ", axis, " of ", value.shape(), " must have size ",
                              ctx.num_outputs(), " (num)");
    }
    HostInts dims;
    for (int i = 0; i < value.rank(); ++i) {
      if (i != axis) dims.add(value.dim(i));
    }
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims.span()));
    for (int i = 0; i < ctx.num_outputs(); ++i) MR_TRY(cut(ctx, value, axis, i, 1, shape, i));
    return ok_status();
  }

 private:
  int64_t axis_;
};

}  // namespace

void register_split(Registry& registry) {
  registry.add({.name = "Split",
                .doc = "Cuts a tensor into equal parts along one dimension.",
                .inputs = {{"split_dim", "host(int32)"}, {"value", "T"}},
                .outputs = {{"output", "num_split*T"}},
                .types = {{"T", {}}},
                .attrs = {{"num_split", "int >= 1"}},
                .traits = {.may_alias = 2, .cost = 0.5F, .dimensions_in = "split_dim"},
                .shape = split_shape,
                .value = split_value,
                .gradient = split_grad});
  registry.add(
      {.name = "SplitV",
       .doc = "Cuts a tensor into parts of given sizes along one dimension.",
       .inputs = {{"value", "T"}, {"size_splits", "host(Tlen)"}, {"split_dim", "host(int32)"}},
       .outputs = {{"output", "num_split*T"}},
       .types = {{"T", {}}, {"Tlen", kIndexTypes, DType::kInt64}},
       .attrs = {{"num_split", "int >= 1"}},
       .traits = {.may_alias = 1, .cost = 0.5F, .dimensions_in = "split_dim"},
       .shape = split_v_shape,
       .gradient = split_v_grad});
  registry.add({.name = "Unpack",
                .doc = "Cuts a tensor into its elements along one dimension, which goes.",
                .inputs = {{"value", "T"}},
                .outputs = {{"output", "num*T"}},
                .types = {{"T", {}}},
                .attrs = {{"num", "int >= 0"}, {"axis", "int = 0"}},
                .traits = {.may_alias = 1, .cost = 0.5F},
                .shape = unpack_shape,
                .value = unpack_value,
                .gradient = unpack_grad});
  registry.kernel("Split", DeviceKind::kCpu, split_cpu);
  registry.kernel("SplitV", DeviceKind::kCpu, split_v_cpu);
  registry.kernel<Unpack>("Unpack", DeviceKind::kCpu);
}

}  // namespace millrace
