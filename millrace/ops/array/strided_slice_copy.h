#pragma once

#include <span>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/ops/array/strided_slice_plan.h"

// What the shape rules and kernels of strided slices share.

namespace millrace {

// The attributes of a node. Source is a KernelNode or a context: whatever has attr<T>(name).
template <class Source>
Result<StridedSliceMasks> read_strided_slice_masks(const Source& node) {
  StridedSliceMasks masks;
  MR_TRY_ASSIGN(masks.begin, node.template attr<int64_t>("begin_mask"));
  MR_TRY_ASSIGN(masks.end, node.template attr<int64_t>("end_mask"));
  MR_TRY_ASSIGN(masks.ellipsis, node.template attr<int64_t>("ellipsis_mask"));
  MR_TRY_ASSIGN(masks.new_axis, node.template attr<int64_t>("new_axis_mask"));
  MR_TRY_ASSIGN(masks.shrink_axis, node.template attr<int64_t>("shrink_axis_mask"));
  return masks;
}

// `n` integers, as far as they are known (value null: none), for StridedSlicePlan::make().
std::vector<int64_t> known_or_not(const PartialValue* value, size_t n);
// What is known of the slice that the attributes and inputs 1 to 3 take of a tensor.
Result<PartialShape> sliced_shape(const ShapeContext& c, const PartialShape& input);

// Makes the plan from inputs 1 to 3, for a tensor of sizes `input`.
Status make_strided_slice_plan(const KernelContext& ctx, std::span<const int64_t> input,
                               const StridedSliceMasks& masks, StridedSlicePlan& plan);

// Adds the slice's dimensions to a copy between the sliced tensor, of sizes `dims`, and the slice,
// which is contiguous. Returns where the slice begins. Nothing is empty.
int64_t add_strided_slice(const StridedSlicePlan& plan, std::span<const int64_t> dims,
                          bool slice_is_target, StridedCopy& copy);

}  // namespace millrace
