// Tensors of one value, and sequences.

#include <cmath>
#include <cstring>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/ops/device_engine.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

Status fill_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 1).status());
  MR_TRY(c.with_rank(1, 0).status());
  if (const auto dims = c.input_vector(0)) {
    MR_TRY_ASSIGN(const Shape shape, Shape::make(*dims));
    c.set_output(0, shape);
    return ok_status();
  }
  MR_TRY_ASSIGN(PartialShape shape, c.input_as_shape(0));
  c.set_output(0, std::move(shape));
  return ok_status();
}

void fill_value(ValueContext& c) {
  const PartialValue* dims = c.input(0);
  const PartialValue* value = c.input(1);
  if (dims == nullptr || value == nullptr || value->elements.size() != 1) return;
  if (dims->elements.empty())
    return c.set_output(0, {.is_scalar = true, .elements = value->elements});
  if (dims->elements.size() > 1 || !dims->elements[0]) return;
  const int64_t n = *dims->elements[0];
  if (n < 0 || n > kMaxValueElements) return;
  PartialValue out;
  out.elements.assign(static_cast<size_t>(n), value->elements[0]);
  c.set_output(0, std::move(out));
}

Status fill_grad(GradientContext& g) {
  OpBuilder& b = g.builder();
  const Expr dy = g.gradient();
  g.set(1, sum(dy, range(int32_scalar(b, 0), rank(dy), int32_scalar(b, 1))));
  return ok_status();
}

Status fill_cpu(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  fill_tensor(ctx, ctx.input(1), *out);
  return ok_status();
}

template <int kValue>
void like_value(ValueContext& c) {
  const Result<DType> type = c.attr<DType>("T");
  const PartialShape& shape = c.input_shape(0);
  if (!type.ok() || !kIndexTypes.contains(*type) || shape.rank() > 1) return;
  const int64_t n = shape.num_elements();
  if (n < 0 || n > kMaxValueElements) return;
  PartialValue value;
  value.is_scalar = shape.rank() == 0;
  value.elements.assign(static_cast<size_t>(n), kValue);
  c.set_output(0, std::move(value));
}

Status zeros_like_shape(ShapeContext& c) {
  c.set_output(0, c.input(0));
  c.set_output_resource(0, c.input_facts(0).resource);
  return ok_status();
}

Status zeros_like_cpu(KernelContext& ctx) {
  const DType dtype = ctx.output_type(0);
  const Shape shape = ctx.input(0).shape();
  if (!is_plain(dtype)) {
    if (dtype == DType::kVariant) {
      MR_TRY_ASSIGN(Tensor zeros, zeros_like_variants(ctx.input(0)));
      ctx.set_output(0, std::move(zeros));
      return ok_status();
    }
    if (dtype != DType::kString) return unimplemented("there is no zero of type ", dtype);
    return ctx.allocate_output(0, shape).status();
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0}, 0, shape));
  if (DeviceEngine* const device = device_engine(ctx)) {
    const char zero = 0;
    return device->fill(ctx, 1, &zero, /*host=*/true, out->mutable_raw(),
                        static_cast<int64_t>(out->bytes()));
  }
  char* bytes = static_cast<char*>(out->mutable_raw());
  ctx.parallel_for(static_cast<int64_t>(out->bytes()), 0.05, [&](int64_t begin, int64_t end) {
    std::memset(bytes + begin, 0, static_cast<size_t>(end - begin));
  });
  return ok_status();
}

using OneTypes = ConcatTypes<NumberTypes, TypeList<bool>>;

Status ones_like_cpu(KernelContext& ctx) {
  const Shape shape = ctx.input(0).shape();
  MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0}, 0, shape));
  return dispatch<OneTypes>(out->dtype(), [&]<class T>() -> Status {
    if (DeviceEngine* const device = device_engine(ctx)) {
      const T one = static_cast<T>(1);
      return device->fill(ctx, sizeof one, &one, /*host=*/true, out->mutable_raw(),
                          shape.num_elements());
    }
    T* data = out->mutable_data<T>().data();
    ctx.parallel_for(shape.num_elements(), 0.1 * sizeof(T), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) data[i] = static_cast<T>(1);
    });
    return ok_status();
  });
}

// The number of elements of start, start + delta, ... before limit. All finite, or an error.
template <class T>
Result<int64_t> range_size(T start, T limit, T delta) {
  if constexpr (std::is_integral_v<T>) {
    if (delta == 0) return invalid_argument("'delta' must not be 0");
    if (delta > 0 ? start > limit : start < limit) {
      return invalid_argument("a range from ", start, " cannot reach ", limit, " with delta ",
                              delta);
    }
    // The distance of two int64s and the size of the smallest one fit in 64 bits without sign.
    const uint64_t s = static_cast<uint64_t>(start), l = static_cast<uint64_t>(limit),
                   d = static_cast<uint64_t>(delta);
    const uint64_t distance = delta > 0 ? l - s : s - l;
    const uint64_t step = delta > 0 ? d : uint64_t{0} - d;
    const uint64_t size = distance / step + (distance % step != 0 ? 1 : 0);
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return invalid_argument("a range of ", size, " elements is too long");
    }
    return static_cast<int64_t>(size);
  } else {
    const double s = static_cast<double>(start), l = static_cast<double>(limit),
                 d = static_cast<double>(delta);
    if (!std::isfinite(s) || !std::isfinite(l) || !std::isfinite(d)) {
      return invalid_argument("a range must be finite, got start ", start, ", limit ", limit,
                              ", delta ", delta);
    }
    if (d == 0) return invalid_argument("'delta' must not be 0");
    if (d > 0 ? s > l : s < l) {
      return invalid_argument("a range from ", start, " cannot reach ", limit, " with delta ",
                              delta);
    }
    const double size = std::ceil(std::abs((l - s) / d));
    if (!(size < 0x1p62)) return invalid_argument("a range of ", size, " elements is too long");
    return static_cast<int64_t>(size);
  }
}

// Element i of a range that has it. Of integers i * delta alone may be more than fits, so it wraps.
template <class T>
T range_element(T start, int64_t i, T delta) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(start) +
                          static_cast<uint64_t>(i) * static_cast<uint64_t>(delta));
  } else {
    using C = ComputeType<T>;
    return static_cast<T>(static_cast<C>(start) + static_cast<C>(i) * static_cast<C>(delta));
  }
}

using RangeTypes = TypeList<float, double, int32_t, int64_t, Half, BFloat16>;

Status range_shape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) MR_TRY(c.with_rank(i, 0).status());
  c.set_output(0, PartialShape::of_rank(1));
  const Tensor *start = c.input_facts(0).constant, *limit = c.input_facts(1).constant,
               *delta = c.input_facts(2).constant;
  if (start != nullptr && limit != nullptr && delta != nullptr) {
    return dispatch<RangeTypes>(c.input_type(0), [&]<class T>() -> Status {
      MR_TRY_ASSIGN(const int64_t n,
                    range_size(start->item<T>(), limit->item<T>(), delta->item<T>()));
      c.set_output(0, PartialShape({n}));
      return ok_status();
    });
  }
  const auto s = c.input_scalar(0), l = c.input_scalar(1), d = c.input_scalar(2);
  if (s && l && d) {
    MR_TRY_ASSIGN(const int64_t n, range_size(*s, *l, *d));
    c.set_output(0, PartialShape({n}));
  }
  return ok_status();
}

void range_value(ValueContext& c) {
  std::optional<int64_t> v[3];
  for (int i = 0; i < 3; ++i) {
    const PartialValue* value = c.input(i);
    if (value == nullptr || value->elements.size() != 1 || !value->elements[0]) return;
    v[i] = value->elements[0];
  }
  const Result<int64_t> n = range_size(*v[0], *v[1], *v[2]);
  if (!n.ok() || *n > kMaxValueElements) return;
  PartialValue out;
  for (int64_t i = 0; i < *n; ++i) out.elements.push_back(range_element(*v[0], i, *v[2]));
  c.set_output(0, std::move(out));
}

template <class T>
Status range_typed(KernelContext& ctx) {
  for (int i = 0; i < 3; ++i) MR_TRY(expect_rank(ctx, i, 0));
  const T start = ctx.input(0).item<T>(), delta = ctx.input(2).item<T>();
  MR_TRY_ASSIGN(const int64_t n, range_size(start, ctx.input(1).item<T>(), delta));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{n}));
  if (DeviceEngine* const device = device_engine(ctx)) {
    if constexpr (std::is_integral_v<T>) {
      return device->range(ctx, out->dtype(), 0, 0, start, delta, out->mutable_raw(), n);
    } else {
      return device->range(ctx, out->dtype(), static_cast<double>(start),
                           static_cast<double>(delta), 0, 0, out->mutable_raw(), n);
    }
  }
  T* data = out->mutable_data<T>().data();
  ctx.parallel_for(n, 0.5, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) data[i] = range_element(start, i, delta);
  });
  return ok_status();
}

Status range_cpu(KernelContext& ctx) {
  return dispatch<RangeTypes>(ctx.output_type(0), [&]<class T>() { return range_typed<T>(ctx); });
}

}  // namespace

void register_fill(Registry& registry) {
  registry.add({.name = "Fill",
                .doc = "A tensor of shape `dims`, every element of which is `value`.",
                .inputs = {{"dims", "host(index_type)"}, {"value", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"index_type", kIndexTypes, DType::kInt32}},
                .traits = {.cost = 0.2F, .each_dimension_in = "dims"},
                .shape = fill_shape,
                .value = fill_value,
                .gradient = fill_grad});
  registry.add({.name = "ZerosLike",
                .doc = "Zeros in the shape and type of x.",
                .inputs = {{"x", "T"}},
                .outputs = {{"y", "T"}},
                .types = {{"T", {}}},
                .traits = {.elementwise = true, .cannot_differentiate = true, .cost = 0.2F},
                .shape = zeros_like_shape,
                .value = like_value<0>});
  registry.add({.name = "OnesLike",
                .doc = "Ones in the shape and type of x.",
                .inputs = {{"x", "T"}},
                .outputs = {{"y", "T"}},
                .types = {{"T", type_set_of<OneTypes>}},
                .traits = {.elementwise = true, .cannot_differentiate = true, .cost = 0.2F},
                .shape = shape_rules::unchanged,
                .value = like_value<1>});
  registry.add(
      {.name = "Range",
       .doc = "The numbers start, start + delta, ... that come before limit.",
       .inputs = {{"start", "host(Tidx)"}, {"limit", "host(Tidx)"}, {"delta", "host(Tidx)"}},
       .outputs = {{"output", "Tidx"}},
       .types = {{"Tidx", type_set_of<RangeTypes>, DType::kInt32}},
       .traits = {.cannot_differentiate = true, .cost = 0.5F},
       .shape = range_shape,
       .value = range_value,
       .no_gradient = "which elements are there depends on their values"});
  registry.kernel("Fill", DeviceKind::kCpu, fill_cpu);
  registry.kernel("ZerosLike", DeviceKind::kCpu, zeros_like_cpu);
  registry.kernel("OnesLike", DeviceKind::kCpu, ones_like_cpu);
  registry.kernel("Range", DeviceKind::kCpu, range_cpu);
}

}  // namespace millrace
