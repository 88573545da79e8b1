// Ops that give the same elements another shape. The output shares the input's buffer.

#include "millrace/ops/array/reshape.h"

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"

namespace millrace {
namespace {

Status share_as(KernelContext& ctx, const Shape& shape) {
  Value value = ctx.take_input(0);
  MR_TRY_ASSIGN(value.tensor, value.tensor.reshaped(shape));
  ctx.set_output_value(0, std::move(value));
  return ok_status();
}

Status reshape_back(GradientContext& g) {
  g.set(0, reshape(g.gradient(), shape_of(g.input(0))));
  return ok_status();
}

// The size that makes `known` times it `elements`.
Result<int64_t> missing_size(int64_t elements, int64_t known, const PartialShape& target) {
  if (known == 0) {
    return invalid_argument("cannot infer the missing size of ", target,
                            " for a tensor without elements unless all other sizes are non-zero");
  }
  if (elements % known != 0) {
    return invalid_argument("a tensor with ", elements, " elements cannot be reshaped to ", target,
                            ": the number of elements must be evenly divisible by ", known);
  }
  return elements / known;
}

Status reshape_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 1).status());
  MR_TRY_ASSIGN(PartialShape target, c.input_as_shape(1));
  MR_TRY_ASSIGN(target, reshaped(c.input(0), std::move(target)));
  c.set_output(0, std::move(target));
  return ok_status();
}

void reshape_value(ValueContext& c) {
  const PartialValue* value = c.input(0);
  const PartialShape& target = c.input_shape(1);
  if (value == nullptr || target.rank() != 1 || !target.dim_known(0) || target.dim(0) > 1) return;
  PartialValue out = *value;
  out.is_scalar = target.dim(0) == 0;
  if (!out.is_scalar || out.elements.size() == 1) c.set_output(0, std::move(out));
}

Status reshape(KernelContext& ctx) {
  HostInts target;
  MR_TRY(target.read_vector(ctx, 1, "shape"));
  MR_TRY_ASSIGN(const Shape shape, reshaped(ctx.input(0).shape(), target.mutable_span()));
  return share_as(ctx, shape);
}

Status expand_dims_shape(ShapeContext& c) {
  if (const int64_t count = c.input(1).num_elements(); count >= 0 && count != 1) {
    return invalid_argument("dim must be one number, got shape ", c.input(1));
  }
  const PartialShape& shape = c.input(0);
  if (!shape.rank_known()) return ok_status();
  const std::optional<int64_t> dim = c.input_scalar(1);
  if (!dim) {
    if (shape.rank() >= Shape::kMaxRank) return invalid_argument("no room for another dimension");
    c.set_output(0, PartialShape::of_rank(shape.rank() + 1));
    return ok_status();
  }
  MR_TRY_ASSIGN(const int axis, normalize_axis(*dim, shape.rank() + 1, "dim"));
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.insert(dims.begin() + axis, 1);
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

void expand_dims_value(ValueContext& c) {
  const PartialValue* value = c.input(0);
  if (value != nullptr && value->is_scalar) c.set_output(0, {.elements = value->elements});
}

Status expand_dims(KernelContext& ctx) {
  MR_TRY_ASSIGN(const int64_t dim, ctx.int_scalar_input(1));
  MR_TRY_ASSIGN(const Shape out, with_dim_inserted(ctx.input(0).shape(), dim));
  return share_as(ctx, out);
}

// Marks in `drop` the dimensions that `squeeze_dims` name, all of which must be 1 where known.
// Without names all dimensions of size 1 go.
Status choose_squeezed(std::span<const int64_t> dims, std::span<const int64_t> squeeze_dims,
                       bool* drop) {
  const int rank = static_cast<int>(dims.size());
  for (int i = 0; i < rank; ++i) {
    drop[i] = squeeze_dims.empty() && dims[static_cast<size_t>(i)] == 1;
  }
  for (int64_t dim : squeeze_dims) {
    MR_TRY_ASSIGN(const int axis, normalize_axis(dim, rank, "squeeze_dims"));
    const int64_t size = dims[static_cast<size_t>(axis)];
    if (size != 1 && size >= 0) {
      return invalid_argument("cannot squeeze dimension ", axis, ": its size is ", size,
                              ", expected 1");
    }
    drop[axis] = true;
  }
  return ok_status();
}

Status squeeze_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const auto squeeze_dims, c.attr<std::vector<int64_t>>("squeeze_dims"));
  const PartialShape& shape = c.input(0);
  if (!shape.rank_known()) return ok_status();
  bool drop[Shape::kMaxRank];
  MR_TRY(choose_squeezed(shape.dims(), squeeze_dims, drop));
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i < shape.rank(); ++i) {
    // An unknown size may turn out to be 1.
    if (squeeze_dims.empty() && !shape.dim_known(i)) return ok_status();
    if (!drop[i]) out.add_dim(shape.dim(i));
  }
  c.set_output(0, std::move(out));
  return ok_status();
}

void squeeze_value(ValueContext& c) {
  const PartialValue* value = c.input(0);
  if (value == nullptr) return;
  PartialValue out = *value;
  if (out.elements.size() == 1) out.is_scalar = true;
  c.set_output(0, std::move(out));
}

class Squeeze : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(auto dims, node.attr<std::vector<int64_t>>("squeeze_dims"));
    return std::make_unique<Squeeze>(std::move(dims));
  }
  explicit Squeeze(std::vector<int64_t> dims) : squeeze_dims_(std::move(dims)) {}

  Status compute(KernelContext& ctx) const override {
    const Shape& shape = ctx.input(0).shape();
    bool drop[Shape::kMaxRank];
    MR_TRY(choose_squeezed(shape.dims(), squeeze_dims_, drop));
    HostInts dims;
    for (int i = 0; i < shape.rank(); ++i) {
      if (!drop[i]) dims.add(shape.dim(i));
    }
    MR_TRY_ASSIGN(const Shape out, Shape::make(dims.span()));
    return share_as(ctx, out);
  }

 private:
  std::vector<int64_t> squeeze_dims_;
};

}  // namespace

Result<Shape> reshaped(const Shape& from, std::span<int64_t> sizes) {
  const int64_t elements = from.num_elements();
  int missing = -1;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    if (sizes[static_cast<size_t>(i)] != -1) continue;
    if (missing >= 0) {
      return invalid_argument("only one size of 'shape' may be -1, found it at ", missing, " and ",
                              i);
    }
    missing = i;
    sizes[static_cast<size_t>(i)] = 1;
  }
  MR_TRY_ASSIGN(Shape shape, Shape::make(sizes));
  if (missing >= 0) {
    MR_TRY_ASSIGN(sizes[static_cast<size_t>(missing)],
                  missing_size(elements, shape.num_elements(), shape));
    MR_TRY_ASSIGN(shape, Shape::make(sizes));
  }
  if (shape.num_elements() != elements) {
    return invalid_argument("a tensor of shape ", from, " with ", elements,
                            " elements cannot be reshaped to ", shape, " (", shape.num_elements(),
                            " elements)");
  }
  return shape;
}

Result<PartialShape> reshaped(const PartialShape& from, PartialShape target) {
  const int64_t elements = from.num_elements();
  if (!target.rank_known() || elements < 0) return target;
  int missing = 0, at = -1;
  int64_t known = 1;
  for (int i = 0; i < target.rank(); ++i) {
    if (target.dim_known(i)) {
      known *= target.dim(i);
    } else {
      ++missing;
      at = i;
    }
  }
  if (missing == 0 && known != elements) {
    return invalid_argument("Cannot reshape a tensor with ", elements, " elements (shape ", from,
                            ") to shape ", target, " (", known, " elements)");
  }
  if (missing == 1 && (known != 0 || elements != 0)) {
    MR_TRY_ASSIGN(const int64_t size, missing_size(elements, known, target));
    target.set_dim(at, size);
  }
  return target;
}

Result<Shape> with_dim_inserted(const Shape& shape, int64_t dim) {
  MR_TRY_ASSIGN(const int axis, normalize_axis(dim, shape.rank() + 1, "dim"));
  HostInts dims;
  for (int i = 0; i <= shape.rank(); ++i) {
    dims.add(i < axis ? shape.dim(i) : i == axis ? 1 : shape.dim(i - 1));
  }
  return Shape::make(dims.span());
}

void register_reshape(Registry& registry) {
  registry.add({.name = "Reshape",
                .doc = "The same elements in another shape; one size may be -1, to be worked out.",
                .inputs = {{"tensor", "T"}, {"shape", "host(Tshape)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Tshape", kIndexTypes, DType::kInt32}},
                .traits = {.forwards = true,
                           .same_when_same_shape = true,
                           .may_alias = 1,
                           .fused_by = "_FusedElementwise"},
                .shape = reshape_shape,
                .value = reshape_value,
                .gradient = reshape_back});
  registry.add({.name = "ExpandDims",
                .doc = "Inserts a dimension of size 1 before dimension `dim`.",
                .inputs = {{"input", "T"}, {"dim", "host(Tdim)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Tdim", kIndexTypes, DType::kInt32}},
                .traits = {.forwards = true, .may_alias = 1, .fused_by = "_FusedElementwise"},
                .shape = expand_dims_shape,
                .value = expand_dims_value,
                .gradient = reshape_back});
  registry.add({.name = "Squeeze",
                .doc = "Drops dimensions of size 1: those listed, or all.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"squeeze_dims", "list(int) = [] >= 0"}},
                .traits = {.forwards = true, .same_when_same_shape = true, .may_alias = 1},
                .shape = squeeze_shape,
                .value = squeeze_value,
                .gradient = reshape_back});
  registry.kernel("Reshape", DeviceKind::kAny, reshape);
  registry.kernel("ExpandDims", DeviceKind::kAny, expand_dims);
  registry.kernel<Squeeze>("Squeeze", DeviceKind::kAny);
}

}  // namespace millrace
