// A slice of a variable replaced: StridedSlice's masks and indices say where.

#include <algorithm>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/strided_slice_copy.h"
#include "millrace/ops/state/variable_update.h"

namespace millrace {
namespace {

bool may_be_empty(const PartialShape& shape) {
  return std::any_of(shape.dims().begin(), shape.dims().end(), [](int64_t d) { return d <= 0; });
}

// Nothing fits nothing, whatever its shape.
Status check_value(const PartialShape& slice, const PartialShape& value) {
  if (slice.compatible(value) || (may_be_empty(slice) && may_be_empty(value))) return ok_status();
  return invalid_argument("'value' must have the shape of the slice, ", slice, ", got ", value);
}

Status check_shapes(const ShapeContext& c, const PartialShape& variable) {
  MR_TRY_ASSIGN(const PartialShape slice, sliced_shape(c, variable));
  return check_value(slice, c.input(4));
}

Status reference_shape(ShapeContext& c) {
  MR_TRY(check_shapes(c, c.input(0)));
  c.set_output(0, c.input(0));
  return ok_status();
}

Status resource_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape variable, variable_shape(c, 0, c.input_type(4)));
  return check_shapes(c, variable);
}

class StridedSliceAssign : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const StridedSliceMasks masks, read_strided_slice_masks(node));
    return std::make_unique<StridedSliceAssign>(masks);
  }
  explicit StridedSliceAssign(const StridedSliceMasks& masks) : masks_(masks) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& value = ctx.input(4);
    VariableUpdate update(ctx, /*use_locking=*/true);
    MR_TRY(update.open(1, value.dtype()));
    const Shape shape = update.tensor(0).shape();
    StridedSlicePlan plan;
    MR_TRY(make_strided_slice_plan(ctx, shape.dims(), masks_, plan));
    MR_TRY_ASSIGN(const Shape slice, Shape::make(plan.output()));
    MR_TRY(check_value(slice, value.shape()));
    if (slice.num_elements() > 0) {
      // The value may be a part of the variable itself.
      Tensor from = value;
      if (from.shares_buffer_with(update.tensor(0))) {
        MR_TRY_ASSIGN(from, value.clone());
      }
      MR_TRY_ASSIGN(Tensor * to, update.writable(0));
      StridedCopy copy;
      const int64_t offset = add_strided_slice(plan, shape.dims(), false, copy);
      copy.run(ctx, from, 0, *to, offset);
    }
    update.forward();
    return ok_status();
  }

 private:
  const StridedSliceMasks masks_;
};

}  // namespace

void register_strided_slice_assign(Registry& registry) {
  for (const bool resource : {false, true}) {
    const char* const name = resource ? "ResourceStridedSliceAssign" : "StridedSliceAssign";
    OpSpec spec{.name = name,
                .doc = "Replaces the elements of a variable that StridedSlice would read.",
                .inputs = {{"ref", resource ? "resource" : "ref(T)"},
                           {"begin", "host(Index)"},
                           {"end", "host(Index)"},
                           {"strides", "host(Index)"},
                           {"value", "T", "Of the shape of the slice."}},
                .types = {{"T", {}}, {"Index", kIndexTypes}},
                .attrs = {{"begin_mask", "int = 0"},
                          {"end_mask", "int = 0"},
                          {"ellipsis_mask", "int = 0"},
                          {"new_axis_mask", "int = 0"},
                          {"shrink_axis_mask", "int = 0"}},
                .traits = {.stateful = true},
                .shape = resource ? resource_shape : reference_shape,
                .no_gradient = "change variables in place"};
    if (!resource) {
      spec.outputs = {{"output_ref", "ref(T)", "The variable, for what must come after."}};
      spec.traits.may_alias = 1;
    }
    registry.add(spec);
    registry.kernel<StridedSliceAssign>(name, DeviceKind::kCpu);
  }
}

}  // namespace millrace
