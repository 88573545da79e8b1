#include "millrace/ops/io/checkpoint_inputs.h"

#include "millrace/io/bundle_index.h"

namespace millrace {
namespace {

Status check_list(const KernelContext& ctx, int input, int count) {
  MR_TRY(expect_rank(ctx, input, 1));
  if (ctx.input(input).num_elements() == count) return ok_status();
  return invalid_argument("input ", input, " must have one string for each of the ", count,
                          " tensors, got ", ctx.input(input).num_elements());
}

}  // namespace

Result<CheckpointInputs> CheckpointInputs::of(const KernelContext& ctx, int count,
                                              bool with_slices) {
  MR_TRY(expect_rank(ctx, 0, 0));
  MR_TRY(check_list(ctx, 1, count));
  CheckpointInputs inputs;
  inputs.path = ctx.input(0).item<std::string>();
  inputs.names = ctx.input(1).data<std::string>();
  if (with_slices) {
    MR_TRY(check_list(ctx, 2, count));
    inputs.slices = ctx.input(2).data<std::string>();
  }
  return inputs;
}

const std::string& CheckpointInputs::slice(size_t i) const {
  static const std::string* const whole = new std::string;
  return slices.empty() ? *whole : slices[i];
}

Result<std::string> op_states_entry(const KernelNode& node) {
  if (node.attrs.find(kOpStatesAttr) == nullptr) return std::string();
  return node.attr<std::string>(kOpStatesAttr);
}

Result<FilePlace> find_checkpoint(const KernelContext& ctx, const std::string& prefix,
                                  FileAccess::Use use) {
  const FileAccess& access = ctx.device().files();
  MR_TRY(access.resolve(index_path(prefix), use).status());
  return access.resolve(prefix, use);
}

Result<std::string> checkpoint_key(const FilePlace& place) {
  MR_TRY_ASSIGN(const std::string path, place.fs->real_path(place.path));
  return str_cat(place.scheme, "://", path);
}

Status check_checkpoint_shapes(ShapeContext& c, int count, bool with_slices) {
  MR_TRY(c.with_rank(0, 0).status());
  for (int i = 1; i <= (with_slices ? 2 : 1); ++i) {
    MR_TRY_ASSIGN(const PartialShape list, c.with_rank(i, 1));
    if (list.dim_known(0) && list.dim(0) != count) {
      return invalid_argument("input ", i, " must have one string for each of the ", count,
                              " tensors, got ", list.dim(0));
    }
  }
  return ok_status();
}

}  // namespace millrace
