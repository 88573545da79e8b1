// Saving tensors in checkpoints.

#include "millrace/base/file_access.h"
#include "millrace/io/bundle_writer.h"
#include "millrace/io/checkpoint_v1.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/io/checkpoint_inputs.h"

namespace millrace {
namespace {

template <bool kSlices>
Status save_shape(ShapeContext& c) {
  const int before = kSlices ? 3 : 2;
  return check_checkpoint_shapes(c, c.num_inputs() - before, kSlices);
}

Status save_v2(KernelContext& ctx) {
  const int count = ctx.num_inputs() - 3;
  MR_TRY_ASSIGN(const CheckpointInputs inputs, CheckpointInputs::of(ctx, count, true));
  MR_TRY_ASSIGN(const FilePlace place,
                ctx.device().files().resolve(inputs.path, FileAccess::Use::kWrite));
  MR_TRY_ASSIGN(std::unique_ptr<BundleWriter> writer, BundleWriter::create(*place.fs, place.path));
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const std::string& name = inputs.names[at];
    const Tensor& tensor = ctx.input(i + 3);
    if (inputs.slice(at).empty()) {
      MR_TRY(writer->add(name, tensor));
      continue;
    }
    MR_TRY_ASSIGN(const ShapeAndSlice spec, ShapeAndSlice::parse(inputs.slice(at)));
    MR_TRY(writer->add_slice(name, spec.whole, spec.slice, tensor));
  }
  return writer->finish();
}

template <bool kSlices>
Status save_v1(KernelContext& ctx) {
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

void register_save(Registry& registry) {
  const OpTraits traits = {.stateful = true, .blocks = true, .cannot_differentiate = true};
  registry.add(
      {.name = "SaveV2",
       .doc = "Saves tensors as a checkpoint, which replaces the one of that name at once.",
       .inputs = {{"prefix", "string", "The checkpoint's name: what its files begin with."},
                  {"tensor_names", "string", "A vector."},
                  {"shape_and_slices", "string",
                   "A vector; '' for a whole tensor, else such as '10 20 0,5:-'."},
                  {"tensors", "host(list(dtypes))"}},
       .attrs = {{"dtypes", "list(type) >= 1"}},
       .traits = traits,
       .shape = save_shape<true>});
  registry.kernel("SaveV2", DeviceKind::kAny, save_v2);
  registry.add({.name = "Save",
                .doc = "Saves tensors in a file of version 1.",
                .inputs = {{"filename", "string"},
                           {"tensor_names", "string", "A vector."},
                           {"data", "host(list(T))"}},
                .attrs = {{"T", "list(type) >= 1"}},
                .traits = traits,
                .shape = save_shape<false>});
  registry.kernel("Save", DeviceKind::kAny, save_v1<false>);
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
  registry.kernel("SaveSlices", DeviceKind::kAny, save_v1<true>);
}

}  // namespace millrace
