// A slice of a variable replaced: StridedSlice's masks and indices say where.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/strided_slice_copy.h"
#include "millrace/ops/state/variable_update.h"

namespace millrace {
namespace {

Status check_indices(const ShapeContext& c) {
  PartialShape all = PartialShape::of_rank(1);
  for (int i = 1; i <= 3; ++i) {
    MR_TRY_ASSIGN(all, all.merge(c.input(i)));
  }
  return ok_status();
}

Status reference_shape(ShapeContext& c) {
  MR_TRY(check_indices(c));
  c.set_output(0, c.input(0));
  return ok_status();
}

Status resource_shape(ShapeContext& c) {
  MR_TRY(check_indices(c));
  return variable_shape(c, 0, c.input_type(4)).status();
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
    // Nothing fits nothing, whatever its shape.
    const bool any = value.num_elements() > 0 || slice.num_elements() > 0;
    if (any && !(value.shape() == slice)) {
      return invalid_argument("'value' must have the shape of the slice, ", slice, ", got ",
                              value.shape());
    }
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
                           {"begin", "Index"},
                           {"end", "Index"},
                           {"strides", "Index"},
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
    registry.add(std::move(spec));
    registry.kernel<StridedSliceAssign>(name, DeviceKind::kCpu);
  }
}

}  // namespace millrace
