// Checkpoints that several tasks write: names of their parts, and how they become one.

#include <cstdio>
#include <set>

#include "millrace/io/background_saves.h"
#include "millrace/io/bundle_writer.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/io/checkpoint_inputs.h"

namespace millrace {
namespace {

Status all_scalars(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) MR_TRY(c.with_rank(i, 0).status());
  return shape_rules::scalar(c);
}

std::string five_digits(int32_t number) {
  char text[16];
  std::snprintf(text, sizeof(text), "%05d", number);
  return text;
}

Status sharded_filename(KernelContext& ctx) {
  for (int i = 0; i < 3; ++i) MR_TRY(expect_rank(ctx, i, 0));
  MR_TRY_ASSIGN(const std::string base, ctx.scalar_input<std::string>(0));
  MR_TRY_ASSIGN(const int32_t shard, ctx.scalar_input<int32_t>(1));
  MR_TRY_ASSIGN(const int32_t shards, ctx.scalar_input<int32_t>(2));
  ctx.set_output(
      0, Tensor::scalar(str_cat(base, "-", five_digits(shard), "-of-", five_digits(shards))));
  return ok_status();
}

Status sharded_filespec(KernelContext& ctx) {
  for (int i = 0; i < 2; ++i) MR_TRY(expect_rank(ctx, i, 0));
  MR_TRY_ASSIGN(const std::string base, ctx.scalar_input<std::string>(0));
  MR_TRY_ASSIGN(const int32_t shards, ctx.scalar_input<int32_t>(1));
  ctx.set_output(0, Tensor::scalar(str_cat(base,
                                           "-????"
                                           "?-of-",
                                           five_digits(shards))));
  return ok_status();
}

Status merge_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 1).status());
  return c.with_rank(1, 0).status();
}

class MergeV2Checkpoints : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool remove, node.attr<bool>("delete_old_dirs"));
    MR_TRY_ASSIGN(const bool allow_missing, node.attr<bool>("allow_missing_files"));
    return std::make_unique<MergeV2Checkpoints>(remove, allow_missing);
  }
  MergeV2Checkpoints(bool remove, bool allow_missing)
      : remove_(remove), allow_missing_(allow_missing) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 1));
    MR_TRY(expect_rank(ctx, 1, 0));
    MR_TRY_ASSIGN(const FilePlace to,
                  find_checkpoint(ctx, ctx.input(1).item<std::string>(), FileAccess::Use::kWrite));
    std::vector<std::string> parts;
    for (const std::string& part : ctx.input(0).data<std::string>()) {
      MR_TRY_ASSIGN(FilePlace from, find_checkpoint(ctx, part, FileAccess::Use::kWrite));
      if (from.fs != to.fs) {
        return invalid_argument("'", part, "' and '", ctx.input(1).item<std::string>(),
                                "' are of different file systems");
      }
      // It may be written beside this step, by this task.
      MR_TRY_ASSIGN(const std::string key, checkpoint_key(from));
      MR_TRY(BackgroundSaves::global().take_error(key, ctx.cancel()));
      if (allow_missing_) {
        MR_TRY_ASSIGN(const bool there, to.fs->exists(index_path(from.path)));
        if (!there) continue;
      }
      parts.push_back(std::move(from.path));
    }
    MR_TRY(merge_bundles(*to.fs, parts, to.path));
    if (remove_) remove_directories(*to.fs, parts, directory_of(to.path));
    return ok_status();
  }

 private:
  // Those that are empty now; others are left, as is the one that the checkpoint is in.
  static void remove_directories(FileSystem& fs, const std::vector<std::string>& parts,
                                 const std::string& kept) {
    std::set<std::string> directories;
    for (const std::string& part : parts) directories.insert(directory_of(part));
    directories.erase(kept);
    for (const std::string& directory : directories) (void)fs.remove(directory).ok();
  }

  const bool remove_;
  const bool allow_missing_;
};

}  // namespace

void register_sharded_checkpoints(Registry& registry) {
  mark_reach({"MergeV2Checkpoints"}, Reach::kFiles);
  registry.add(
      {.name = "ShardedFilename",
       .doc = "basename-SSSSS-of-NNNNN: the name of one part.",
       .inputs = {{"basename", "string"}, {"shard", "host(int32)"}, {"num_shards", "host(int32)"}},
       .outputs = {{"filename", "string"}},
       .traits = {.cannot_differentiate = true},
       .shape = all_scalars});
  registry.kernel("ShardedFilename", DeviceKind::kAny, sharded_filename);
  registry.add({.name = "ShardedFilespec",
                .doc = "A pattern for the names of all parts.",
                .inputs = {{"basename", "string"}, {"num_shards", "host(int32)"}},
                .outputs = {{"filename", "string"}},
                .traits = {.cannot_differentiate = true},
                .shape = all_scalars});
  registry.kernel("ShardedFilespec", DeviceKind::kAny, sharded_filespec);
  registry.add(
      {.name = "MergeV2Checkpoints",
       .doc = "Makes checkpoints one, without copying: their data files are moved.",
       .inputs = {{"checkpoint_prefixes", "string", "A vector."}, {"destination_prefix", "string"}},
       .attrs = {{"delete_old_dirs", "bool = true",
                  "Whether directories that are empty afterwards are removed."},
                 {"allow_missing_files", "bool = false",
                  "Whether parts that are not there are left out."}},
       .traits = {.stateful = true, .blocks = true, .cannot_differentiate = true},
       .shape = merge_shape});
  registry.kernel<MergeV2Checkpoints>("MergeV2Checkpoints", DeviceKind::kAny);
}

}  // namespace millrace
