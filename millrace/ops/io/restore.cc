// Reading tensors from checkpoints.

#include "millrace/io/background_saves.h"
#include "millrace/io/checkpoint_reader.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/op_state.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/io/checkpoint_inputs.h"

namespace millrace {
namespace {

// The shapes of slices that constants name; of whole tensors nothing is known before they are read.
Status slice_shapes(ShapeContext& c) {
  const Tensor* slices = c.input_facts(2).constant;
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (slices == nullptr || slices->num_elements() <= i) break;
    const std::string& text = slices->data<std::string>()[static_cast<size_t>(i)];
    if (text.empty()) continue;
    MR_TRY_ASSIGN(ShapeAndSlice spec, ShapeAndSlice::parse(text));
    c.set_output(i, spec.shape);
  }
  return ok_status();
}

Status restore_v2_shape(ShapeContext& c) {
  MR_TRY(check_checkpoint_shapes(c, c.num_outputs(), true));
  return slice_shapes(c);
}

template <bool kSlice>
Status restore_v1_shape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) MR_TRY(c.with_rank(i, 0).status());
  return kSlice ? slice_shapes(c) : ok_status();
}

// The checkpoint at `path`, all of whose files the device may read.
Result<Ref<CheckpointReader>> open_checkpoint(
    const KernelContext& ctx, const std::string& path,
    Result<Ref<CheckpointReader>> (*open)(FileSystem&, const std::string&)) {
  const FileAccess& access = ctx.device().files();
  MR_TRY_ASSIGN(const FilePlace place, find_checkpoint(ctx, path, FileAccess::Use::kRead));
  // One that this process is saving right now, too.
  MR_TRY_ASSIGN(const std::string key, checkpoint_key(place));
  MR_TRY(BackgroundSaves::global().finish(key, ctx.cancel()));
  MR_TRY_ASSIGN(Ref<CheckpointReader> reader, open(*place.fs, place.path));
  // A file may be a link that leads elsewhere.
  const std::string scheme = place.scheme.empty() ? "" : str_cat(place.scheme, "://");
  for (const std::string& file : reader->files()) {
    MR_TRY(access.resolve(str_cat(scheme, file), FileAccess::Use::kRead).status());
  }
  return reader;
}

Status restore_one(KernelContext& ctx, const CheckpointReader& reader, const std::string& name,
                   const std::string& spec, int output) {
  MR_TRY_ASSIGN(const StoredTensor* stored, reader.get(name));
  if (stored->dtype != ctx.output_type(output)) {
    return invalid_argument("tensor_name = ", name, "; expected dtype ", ctx.output_type(output),
                            " does not equal original dtype ", stored->dtype,
                            " in checkpoint files ", reader.prefix());
  }
  TensorSlice slice = TensorSlice::whole(stored->shape.rank());
  Shape shape = stored->shape;
  if (!spec.empty()) {
    MR_TRY_ASSIGN(ShapeAndSlice asked, ShapeAndSlice::parse(spec));
    if (asked.whole != stored->shape) {
      return invalid_argument("tensor_name = ", name, "; shape in shape_and_slice spec ",
                              asked.whole,
                              " does not match the shape stored in checkpoint: ", stored->shape,
                              ", in checkpoint files ", reader.prefix());
    }
    slice = std::move(asked.slice);
    shape = std::move(asked.shape);
  }
  MR_TRY(reader.check_present(*stored, slice));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(output, shape));
  return reader.read(*stored, slice, *out);
}

// Nothing happens with a checkpoint that has none: an older one, or TensorFlow's.
Status restore_states(const KernelContext& ctx, const CheckpointReader& reader) {
  MR_TRY_ASSIGN(const std::string entry, op_states_entry(ctx.node()));
  if (entry.empty()) return ok_status();
  const StoredTensor* stored = reader.find(entry);
  if (stored == nullptr) return ok_status();
  if (stored->dtype != DType::kString || stored->shape.rank() != 0) {
    return invalid_argument("tensor_name = ", entry,
                            "; expected the state of random ops, a string,", " got ", stored->dtype,
                            " ", stored->shape, " in checkpoint files ", reader.prefix());
  }
  MR_TRY_ASSIGN(const Tensor states, reader.read(entry));
  const Status status = restore_op_states(
      ctx.resources(), ResourceManager::session_name(ctx.node().session_prefix, ""),
      states.item<std::string>());
  return status.ok() ? status : status.with_prefix(str_cat(entry, " of ", reader.prefix()));
}

Status restore_v2(KernelContext& ctx) {
  const int count = ctx.num_outputs();
  MR_TRY_ASSIGN(const CheckpointInputs inputs, CheckpointInputs::of(ctx, count, true));
  MR_TRY_ASSIGN(const Ref<CheckpointReader> reader,
                open_checkpoint(ctx, inputs.path, CheckpointReader::open));
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    MR_TRY(restore_one(ctx, *reader, inputs.names[at], inputs.slice(at), i));
  }
  return restore_states(ctx, *reader);
}

Status restore_v1(KernelContext& ctx) {
  for (int i = 0; i < ctx.num_inputs(); ++i) MR_TRY(expect_rank(ctx, i, 0));
  const std::string& pattern = ctx.input(0).item<std::string>();
  const std::string& name = ctx.input(1).item<std::string>();
  const std::string spec = ctx.num_inputs() > 2 ? ctx.input(2).item<std::string>() : "";
  MR_TRY_ASSIGN(const Ref<CheckpointReader> reader,
                open_checkpoint(ctx, pattern, CheckpointReader::open_v1));
  return restore_one(ctx, *reader, name, spec, 0);
}

}  // namespace

void register_restore(Registry& registry) {
  mark_reach({"RestoreV2", "Restore", "RestoreSlice"}, Reach::kFiles);
  const OpTraits traits = {.stateful = true, .blocks = true, .cannot_differentiate = true};
  registry.add(
      {.name = "RestoreV2",
       .doc = "Tensors of a checkpoint, of version 1 too.",
       .inputs = {{"prefix", "string", "The checkpoint's name: what its files begin with."},
                  {"tensor_names", "string", "A vector."},
                  {"shape_and_slices", "string",
                   "A vector; '' for a whole tensor, else such as '10 20 0,5:-'."}},
       .outputs = {{"tensors", "host(list(dtypes))"}},
       .attrs = {{"dtypes", "list(type) >= 1"}},
       .traits = traits,
       .shape = restore_v2_shape});
  registry.kernel("RestoreV2", DeviceKind::kAny, restore_v2);
  registry.add({.name = "Restore",
                .doc = "A tensor of a checkpoint of version 1.",
                .inputs = {{"file_pattern", "string", "Its files."}, {"tensor_name", "string"}},
                .outputs = {{"tensor", "host(dt)"}},
                .types = {{"dt", {}}},
                .attrs = {{"preferred_shard", "int = -1", "Read by nobody here."}},
                .traits = traits,
                .shape = restore_v1_shape<false>});
  registry.kernel("Restore", DeviceKind::kAny, restore_v1);
  registry.add({.name = "RestoreSlice",
                .doc = "A slice of a tensor of a checkpoint of version 1.",
                .inputs = {{"file_pattern", "string", "Its files."},
                           {"tensor_name", "string"},
                           {"shape_and_slice", "string", "Such as '10 20 0,5:-'."}},
                .outputs = {{"tensor", "host(dt)"}},
                .types = {{"dt", {}}},
                .attrs = {{"preferred_shard", "int = -1", "Read by nobody here."}},
                .traits = traits,
                .shape = restore_v1_shape<true>});
  registry.kernel("RestoreSlice", DeviceKind::kAny, restore_v1);
}

}  // namespace millrace
