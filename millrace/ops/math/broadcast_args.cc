#include <algorithm>
#include <optional>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

// Arithmetic on shapes that are broadcast together, for gradients of broadcasting ops.

namespace millrace {
namespace {

using Sizes = std::vector<int64_t>;

// What s0 and s1 give together: sizes, and for each the dimensions in which it is repeated (those
// in which both are 1 count for both, unless the shapes are equal).
struct Broadcasting {
  Sizes shape, r0, r1;
};

Result<Broadcasting> broadcasting_of(const Sizes& s0, const Sizes& s1) {
  Broadcasting result;
  const size_t rank = std::max(s0.size(), s1.size());
  for (size_t d = 0; d < rank; ++d) {
    const size_t pad0 = rank - s0.size(), pad1 = rank - s1.size();
    const int64_t a = d < pad0 ? 1 : s0[d - pad0];
    const int64_t b = d < pad1 ? 1 : s1[d - pad1];
    if (a != b && a != 1 && b != 1) {
      return invalid_argument("Incompatible shapes for broadcasting: [", str_join(s0, ","),
                              "] and [", str_join(s1, ","), "]");
    }
    result.shape.push_back(a == 1 ? b : a);
    if (s0 == s1) continue;
    if (a == 1) result.r0.push_back(static_cast<int64_t>(d));
    if (b == 1) result.r1.push_back(static_cast<int64_t>(d));
  }
  return result;
}

Result<Sizes> vector_input(const KernelContext& ctx, int i) {
  MR_TRY(expect_rank(ctx, i, 1));
  return ctx.int_vector_input(i);
}

Status set_vector(KernelContext& ctx, int i, const Sizes& values) {
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i, Shape{static_cast<int64_t>(values.size())}));
  if (out->dtype() == DType::kInt32) {
    std::copy(values.begin(), values.end(), out->mutable_data<int32_t>().begin());
  } else {
    std::copy(values.begin(), values.end(), out->mutable_data<int64_t>().begin());
  }
  return ok_status();
}

PartialValue known(const Sizes& values) {
  return {false, std::vector<std::optional<int64_t>>(values.begin(), values.end())};
}

// The broadcasting of two inputs, where they are known.
Result<std::optional<Broadcasting>> known_broadcasting(ShapeContext& c) {
  const auto s0 = c.input_vector(0), s1 = c.input_vector(1);
  if (!s0 || !s1) return std::optional<Broadcasting>();
  MR_TRY_ASSIGN(Broadcasting result, broadcasting_of(*s0, *s1));
  return std::optional<Broadcasting>(std::move(result));
}

std::optional<Broadcasting> known_broadcasting(ValueContext& c) {
  Sizes sizes[2];
  for (int i = 0; i < 2; ++i) {
    const PartialValue* value = c.input(i);
    if (value == nullptr || value->is_scalar || !value->fully_known()) return std::nullopt;
    for (const auto& e : value->elements) sizes[i].push_back(*e);
  }
  Result<Broadcasting> result = broadcasting_of(sizes[0], sizes[1]);
  if (!result.ok()) return std::nullopt;
  return std::move(result).value();
}

Status gradient_args_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 1).status());
  MR_TRY(c.with_rank(1, 1).status());
  MR_TRY_ASSIGN(const std::optional<Broadcasting> known, known_broadcasting(c));
  c.set_output(0, {known ? static_cast<int64_t>(known->r0.size()) : PartialShape::kUnknownDim});
  c.set_output(1, {known ? static_cast<int64_t>(known->r1.size()) : PartialShape::kUnknownDim});
  return ok_status();
}

void gradient_args_value(ValueContext& c) {
  if (const auto result = known_broadcasting(c)) {
    c.set_output(0, known(result->r0));
    c.set_output(1, known(result->r1));
  }
}

Status gradient_args(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Sizes s0, vector_input(ctx, 0));
  MR_TRY_ASSIGN(const Sizes s1, vector_input(ctx, 1));
  MR_TRY_ASSIGN(const Broadcasting result, broadcasting_of(s0, s1));
  MR_TRY(set_vector(ctx, 0, result.r0));
  return set_vector(ctx, 1, result.r1);
}

Status args_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape s0, c.with_rank(0, 1));
  MR_TRY_ASSIGN(const PartialShape s1, c.with_rank(1, 1));
  MR_TRY(known_broadcasting(c).status());
  const bool both = s0.dim_known(0) && s1.dim_known(0);
  c.set_output(0, {both ? std::max(s0.dim(0), s1.dim(0)) : PartialShape::kUnknownDim});
  return ok_status();
}

void args_value(ValueContext& c) {
  if (const auto result = known_broadcasting(c)) c.set_output(0, known(result->shape));
}

Status args(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Sizes s0, vector_input(ctx, 0));
  MR_TRY_ASSIGN(const Sizes s1, vector_input(ctx, 1));
  MR_TRY_ASSIGN(const Broadcasting result, broadcasting_of(s0, s1));
  return set_vector(ctx, 0, result.shape);
}

}  // namespace

void register_broadcast_args(Registry& registry) {
  registry.add({.name = "BroadcastGradientArgs",
                .doc = "The dimensions over which the gradients of two operands of these shapes, "
                       "broadcast together, are summed.",
                .inputs = {{"s0", "host(T)"}, {"s1", "host(T)"}},
                .outputs = {{"r0", "host(T)"}, {"r1", "host(T)"}},
                .types = {{"T", kIndexTypes, DType::kInt32}},
                .traits = {.cannot_differentiate = true},
                .shape = gradient_args_shape,
                .value = gradient_args_value});
  registry.kernel("BroadcastGradientArgs", DeviceKind::kAny, gradient_args);
  registry.add({.name = "BroadcastArgs",
                .doc = "The shape of two operands of these shapes, broadcast together.",
                .inputs = {{"s0", "host(T)"}, {"s1", "host(T)"}},
                .outputs = {{"r0", "host(T)"}},
                .types = {{"T", kIndexTypes, DType::kInt32}},
                .traits = {.cannot_differentiate = true},
                .shape = args_shape,
                .value = args_value});
  registry.kernel("BroadcastArgs", DeviceKind::kAny, args);
}

}  // namespace millrace
