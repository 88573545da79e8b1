#pragma once

#include <span>
#include <string>
#include <string_view>

#include "millrace/base/file_access.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"

// What ops that save and restore have in common: a file name, names of tensors, and perhaps for
// each tensor which slice of it is meant.

namespace millrace {

// Of `count` tensors. Slices are empty strings for whole tensors.
struct CheckpointInputs {
  std::string path;
  std::span<const std::string> names;
  std::span<const std::string> slices;  // as many, or none where the op has no such input

  // Inputs 0, 1 and, `with_slices`, 2; INVALID_ARGUMENT for other shapes.
  static Result<CheckpointInputs> of(const KernelContext& ctx, int count, bool with_slices);
  const std::string& slice(size_t i) const;
};

// Where the checkpoint of that name is. Its files, which lie beside the name, are the device's to
// use, too: PERMISSION_DENIED otherwise.
Result<FilePlace> find_checkpoint(const KernelContext& ctx, const std::string& prefix,
                                  FileAccess::Use use);

// The attribute by which SaveV2 and RestoreV2 take the state of the session's random ops along: the
// name of its entry in the checkpoint. It begins with '_', so that TensorFlow, which knows of no
// such state, reads these nodes all the same.
inline constexpr std::string_view kOpStatesAttr = "_op_states";
// Empty where a node has none.
Result<std::string> op_states_entry(const KernelNode& node);

// The attribute of a SaveV2 that goes on beside the steps that follow. TensorFlow saves before the
// step ends.
inline constexpr std::string_view kAsynchronousAttr = "_asynchronous";

// What a checkpoint is called where saves go on beside steps (BackgroundSaves), however its path is
// written.
Result<std::string> checkpoint_key(const FilePlace& place);

// The check of shapes alone, for rules.
Status check_checkpoint_shapes(ShapeContext& c, int count, bool with_slices);

}  // namespace millrace
