#include "millrace/ops/array/strided_slice_copy.h"

#include <algorithm>

#include "millrace/ops/array/host_ints.h"

namespace millrace {

std::vector<int64_t> known_or_not(const PartialValue* value, size_t n) {
  std::vector<int64_t> out(n, StridedSlicePlan::kUnknown);
  for (size_t i = 0; value != nullptr && i < n; ++i) {
    if (value->elements[i]) out[i] = std::max(*value->elements[i], StridedSlicePlan::kUnknown + 1);
  }
  return out;
}

Result<PartialShape> sliced_shape(const ShapeContext& c, const PartialShape& input) {
  MR_TRY_ASSIGN(const StridedSliceMasks masks, read_strided_slice_masks(c));
  PartialShape all = PartialShape::of_rank(1);
  for (int i = 1; i <= 3; ++i) {
    MR_TRY_ASSIGN(all, all.merge(c.input(i)));
  }
  if (!all.dim_known(0) || !input.rank_known()) return PartialShape();
  if (all.dim(0) > StridedSlicePlan::kMaxEntries) {
    return invalid_argument("'begin' has ", all.dim(0), " elements, at most ",
                            StridedSlicePlan::kMaxEntries, " are possible");
  }
  const auto given = [&](int i) {
    const std::optional<PartialValue>& value = c.input_facts(i).value;
    return known_or_not(value ? &*value : nullptr, static_cast<size_t>(all.dim(0)));
  };
  StridedSlicePlan plan;
  MR_TRY(plan.make(input.dims(), given(1), given(2), given(3), masks));
  return PartialShape::make(plan.output());
}

Status make_strided_slice_plan(const KernelContext& ctx, std::span<const int64_t> input,
                               const StridedSliceMasks& masks, StridedSlicePlan& plan) {
  HostInts begin, end, strides;
  MR_TRY(begin.read_vector(ctx, 1, "begin"));
  MR_TRY(end.read_vector(ctx, 2, "end"));
  MR_TRY(strides.read_vector(ctx, 3, "strides"));
  for (HostInts* list : {&begin, &end, &strides}) {
    for (int i = 0; i < list->size(); ++i) {
      (*list)[i] = std::max((*list)[i], StridedSlicePlan::kUnknown + 1);
    }
  }
  return plan.make(input, begin.span(), end.span(), strides.span(), masks);
}

int64_t add_strided_slice(const StridedSlicePlan& plan, std::span<const int64_t> dims,
                          bool slice_is_target, StridedCopy& copy) {
  int64_t whole_stride = 1, slice_stride = 1, offset = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    whole_stride *= dims[i];
    slice_stride *= plan.size(static_cast<int>(i));
  }
  for (int i = 0; i < plan.input_rank(); ++i) {
    whole_stride /= dims[static_cast<size_t>(i)];
    slice_stride /= plan.size(i);
    offset += plan.begin(i) * whole_stride;
    // A single element has no next one, and its stride may be as large as it likes.
    const int64_t step = plan.size(i) == 1 ? 0 : plan.stride(i) * whole_stride;
    if (slice_is_target) {
      copy.add_dim(plan.size(i), step, slice_stride);
    } else {
      copy.add_dim(plan.size(i), slice_stride, step);
    }
  }
  return offset;
}

}  // namespace millrace
