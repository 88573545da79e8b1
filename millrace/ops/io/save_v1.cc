// Saving tensors in files of version 1.

#include "millrace/base/file_access.h"
#include "millrace/io/checkpoint_v1.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/io/checkpoint_inputs.h"

namespace millrace {
namespace {

template <bool kSlices>
Status save_shape(ShapeContext& c) {
  const int before = kSlices ? 3 : 2;
  return check_checkpoint_shapes(c, c.num_inputs() - before, kSlices);
}

template <bool kSlices>
Status save(KernelContext& ctx) {
  const int before = kSlices ? 3 : 2;
  const int count = ctx.num_inputs() - before;
  MR_TRY_ASSIGN(const CheckpointInputs inputs, CheckpointInputs::of(ctx, count, kSlices));
  MR_TRY_ASSIGN(const FilePlace place,
                ctx.device().files().resolve(inputs.path, FileAccess::Use::kWrite));
  std::vector<V1Slice> slices;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const Tensor& tensor = ctx.input(i + before);
    V1Slice slice{inputs.names[at], tensor.shape(), TensorSlice::whole(tensor.rank()), tensor};
    if (!inputs.slice(at).empty()) {
      MR_TRY_ASSIGN(ShapeAndSlice spec, ShapeAndSlice::parse(inputs.slice(at)));
      slice.whole = std::move(spec.whole);
      slice.slice = std::move(spec.slice);
    }
    slices.push_back(std::move(slice));
  }
  return write_v1(*place.fs, place.path, slices);
}

}  // namespace

void register_save_v1(Registry& registry) {
  mark_reach({"Save", "SaveSlices"}, Reach::kFiles);
  const OpTraits traits = {.stateful = true, .blocks = true, .cannot_differentiate = true};
  registry.add({.name = "Save",
                .doc = "Saves tensors in a file of version 1.",
                .inputs = {{"filename", "string"},
                           {"tensor_names", "string", "A vector."},
                           {"data", "host(list(T))"}},
                .attrs = {{"T", "list(type) >= 1"}},
                .traits = traits,
                .shape = save_shape<false>});
  registry.kernel("Save", DeviceKind::kAny, save<false>);
  registry.add({.name = "SaveSlices",
                .doc = "Saves slices of tensors in a file of version 1.",
                .inputs = {{"filename", "string"},
                           {"tensor_names", "string", "A vector."},
                           {"shapes_and_slices", "string",
                            "A vector; '' for a whole tensor, else such as '10 20 0,5:-'."},
                           {"data", "host(list(T))"}},
                .attrs = {{"T", "list(type) >= 1"}},
                .traits = traits,
                .shape = save_shape<true>});
  registry.kernel("SaveSlices", DeviceKind::kAny, save<true>);
}

}  // namespace millrace
