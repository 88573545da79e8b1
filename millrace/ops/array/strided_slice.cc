#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/strided_slice_copy.h"

namespace millrace {
namespace {

Status strided_slice_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape out, sliced_shape(c, c.input(0)));
  c.set_output(0, std::move(out));
  return ok_status();
}

void strided_slice_value(ValueContext& c) {
  const PartialValue *value = c.input(0), *begin = c.input(1), *end = c.input(2),
                     *strides = c.input(3);
  if (value == nullptr || value->is_scalar || begin == nullptr || strides == nullptr) return;
  const Result<StridedSliceMasks> masks = read_strided_slice_masks(c);
  if (!masks.ok()) return;
  const size_t n = begin->elements.size();
  const int64_t input[] = {static_cast<int64_t>(value->elements.size())};
  const std::vector<int64_t> first = known_or_not(begin, n), step = known_or_not(strides, n);
  StridedSlicePlan plan;
  if (!plan.make(input, first, known_or_not(end, n), step, *masks).ok()) return;
  // One entry is the vector's own; where it is unknown, so is what it takes.
  for (size_t i = 0; i < n; ++i) {
    const bool shrinks = ((masks->shrink_axis >> i) & 1) != 0;
    if (shrinks && (first[i] == StridedSlicePlan::kUnknown)) return;
  }
  if (plan.size(0) < 0 || plan.output().size() > 1) return;
  PartialValue out;
  out.is_scalar = plan.output().empty();
  for (int64_t i = 0; i < plan.size(0); ++i) {
    out.elements.push_back(
        value->elements[static_cast<size_t>(plan.begin(0) + i * plan.stride(0))]);
  }
  c.set_output(0, std::move(out));
}

AttrMap mask_attrs(const GradientContext& g) {
  AttrMap attrs;
  for (const char* name :
       {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"}) {
    attrs.set(name, g.attr_value(name));
  }
  return attrs;
}

Status strided_slice_grad(GradientContext& g) {
  const Expr begin = g.input(1);
  g.set(0, call("StridedSliceGrad",
                {shape_of(g.input(0), begin.dtype()), begin, g.input(2), g.input(3), g.gradient()},
                mask_attrs(g)));
  return ok_status();
}

Status strided_slice_grad_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 1).status());
  MR_TRY_ASSIGN(PartialShape shape, sizes_input(c, 0));
  MR_TRY_ASSIGN(const PartialShape slice, sliced_shape(c, shape));
  MR_TRY(with_shape(c, 4, slice).status());
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status strided_slice_grad_grad(GradientContext& g) {
  g.set(4, call("StridedSlice", {g.gradient(), g.input(1), g.input(2), g.input(3)}, mask_attrs(g)));
  return ok_status();
}

class StridedSlice : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const StridedSliceMasks masks, read_strided_slice_masks(node));
    return std::make_unique<StridedSlice>(masks);
  }
  explicit StridedSlice(const StridedSliceMasks& masks) : masks_(masks) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& input = ctx.input(0);
    StridedSlicePlan plan;
    MR_TRY(make_strided_slice_plan(ctx, input.shape().dims(), masks_, plan));
    MR_TRY_ASSIGN(const Shape shape, Shape::make(plan.output()));
    if (is_rows(plan, input.shape())) {
      const int64_t begin = input.rank() == 0 ? 0 : plan.begin(0);
      const Tensor rows = input.rank() == 0 ? input : input.rows(begin, begin + plan.size(0));
      MR_TRY_ASSIGN(Tensor out, rows.reshaped(shape));
      ctx.set_output(0, std::move(out));
      return ok_status();
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    StridedCopy copy;
    const int64_t offset = add_strided_slice(plan, input.shape().dims(), true, copy);
    copy.run(ctx, input, offset, *out, 0);
    return ok_status();
  }

 private:
  // Whether the slice is whole rows, one after the other.
  static bool is_rows(const StridedSlicePlan& plan, const Shape& input) {
    for (int i = 0; i < input.rank(); ++i) {
      if (plan.stride(i) != 1 && plan.size(i) != 1) return false;
      if (i > 0 && plan.size(i) != input.dim(i)) return false;
    }
    return input.rank() == 0 || plan.size(0) > 0;
  }

  StridedSliceMasks masks_;
};

class StridedSliceGrad : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const StridedSliceMasks masks, read_strided_slice_masks(node));
    return std::make_unique<StridedSliceGrad>(masks);
  }
  explicit StridedSliceGrad(const StridedSliceMasks& masks) : masks_(masks) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
    StridedSlicePlan plan;
    MR_TRY(make_strided_slice_plan(ctx, shape.dims(), masks_, plan));
    MR_TRY_ASSIGN(const Shape slice, Shape::make(plan.output()));
    const Tensor& dy = ctx.input(4);
    if (!(dy.shape() == slice)) {
      return invalid_argument("'dy' must have the shape of the slice, ", slice, ", got ",
                              dy.shape());
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (is_plain(out->dtype())) zero_tensor(ctx, *out);
    if (slice.num_elements() == 0) return ok_status();
    StridedCopy copy;
    const int64_t offset = add_strided_slice(plan, shape.dims(), false, copy);
    copy.run(ctx, dy, 0, *out, offset);
    return ok_status();
  }

 private:
  StridedSliceMasks masks_;
};

std::vector<OpSpec::Attr> mask_definitions() {
  return {{"begin_mask", "int = 0"},
          {"end_mask", "int = 0"},
          {"ellipsis_mask", "int = 0"},
          {"new_axis_mask", "int = 0"},
          {"shrink_axis_mask", "int = 0"}};
}

}  // namespace

void register_strided_slice(Registry& registry) {
  registry.add({.name = "StridedSlice",
                .doc = "The elements begin, begin + stride, ... before end, in every dimension.",
                .inputs = {{"input", "T"},
                           {"begin", "host(Index)"},
                           {"end", "host(Index)"},
                           {"strides", "host(Index)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Index", kIndexTypes}},
                .attrs = mask_definitions(),
                .traits = {.may_alias = 1, .cost = 0.5F},
                .shape = strided_slice_shape,
                .value = strided_slice_value,
                .gradient = strided_slice_grad});
  registry.add({.name = "StridedSliceGrad",
                .doc = "Zeros of shape `shape` with dy where StridedSlice would read.",
                .inputs = {{"shape", "host(Index)"},
                           {"begin", "host(Index)"},
                           {"end", "host(Index)"},
                           {"strides", "host(Index)"},
                           {"dy", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Index", kIndexTypes}},
                .attrs = mask_definitions(),
                .traits = {.cost = 0.5F},
                .shape = strided_slice_grad_shape,
                .gradient = strided_slice_grad_grad});
  registry.kernel<StridedSlice>("StridedSlice", DeviceKind::kCpu);
  registry.kernel<StridedSliceGrad>("StridedSliceGrad", DeviceKind::kCpu);
}

}  // namespace millrace
