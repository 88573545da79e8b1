// Ops that look at a tensor's shape and not at its elements.

#include <limits>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

constexpr OpTraits kMetadata = {.metadata_only = true, .cannot_differentiate = true};

Status shape_shape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    PartialShape vector = PartialShape::of_rank(1);
    if (c.input(i).rank_known()) vector.set_dim(0, c.input(i).rank());
    c.set_output(i, std::move(vector));
  }
  return ok_status();
}

void shape_value(ValueContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    const PartialShape& shape = c.input_shape(i);
    if (!shape.rank_known()) continue;
    PartialValue value;
    for (int64_t d : shape.dims()) {
      value.elements.push_back(d < 0 ? std::nullopt : std::optional<int64_t>(d));
    }
    c.set_output(i, std::move(value));
  }
}

void size_value(ValueContext& c) {
  const int64_t n = c.input_shape(0).num_elements();
  if (n >= 0) c.set_output(0, {.is_scalar = true, .elements = {n}});
}

void rank_value(ValueContext& c) {
  const PartialShape& shape = c.input_shape(0);
  if (shape.rank_known()) c.set_output(0, {.is_scalar = true, .elements = {shape.rank()}});
}

Status put(Tensor& out, int64_t i, int64_t value, std::string_view what) {
  if (out.dtype() == DType::kInt64) {
    out.mutable_data<int64_t>()[static_cast<size_t>(i)] = value;
    return ok_status();
  }
  if (value > std::numeric_limits<int32_t>::max()) {
    return invalid_argument(what, " ", value, " does not fit in int32: use out_type=int64");
  }
  out.mutable_data<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(value);
  return ok_status();
}

Status shape_cpu(KernelContext& ctx) {
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const Shape& shape = ctx.input(i).shape();
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i, Shape{shape.rank()}));
    for (int k = 0; k < shape.rank(); ++k) MR_TRY(put(*out, k, shape.dim(k), "size"));
  }
  return ok_status();
}

Status size_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
  return put(*out, 0, ctx.input(0).num_elements(), "number of elements");
}

Status rank_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
  return put(*out, 0, ctx.input(0).rank(), "rank");
}

}  // namespace

void register_shape_of(Registry& registry) {
  registry.add({.name = "Shape",
                .doc = "The sizes of a tensor's dimensions.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "host(out_type)"}},
                .types = {{"T", {}}, {"out_type", kIndexTypes, DType::kInt32}},
                .traits = kMetadata,
                .shape = shape_shape,
                .value = shape_value});
  registry.add({.name = "ShapeN",
                .doc = "The shape of each of several tensors.",
                .inputs = {{"input", "N*T"}},
                .outputs = {{"output", "host(N*out_type)"}},
                .types = {{"T", {}}, {"out_type", kIndexTypes, DType::kInt32}},
                .attrs = {{"N", "int >= 1"}},
                .traits = kMetadata,
                .shape = shape_shape,
                .value = shape_value});
  registry.add({.name = "Size",
                .doc = "The number of elements of a tensor.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "host(out_type)"}},
                .types = {{"T", {}}, {"out_type", kIndexTypes, DType::kInt32}},
                .traits = kMetadata,
                .shape = shape_rules::scalar,
                .value = size_value});
  registry.add({.name = "Rank",
                .doc = "The number of dimensions of a tensor.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "host(int32)"}},
                .types = {{"T", {}}},
                .traits = kMetadata,
                .shape = shape_rules::scalar,
                .value = rank_value});
  registry.kernel("Shape", DeviceKind::kAny, shape_cpu);
  registry.kernel("ShapeN", DeviceKind::kAny, shape_cpu);
  registry.kernel("Size", DeviceKind::kAny, size_cpu);
  registry.kernel("Rank", DeviceKind::kAny, rank_cpu);
}

}  // namespace millrace
