#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/io/bundle_index.h"
#include "millrace/io/tensor_slice.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Writes a checkpoint that TensorFlow reads: PREFIX.index and a data file. Nothing of it is to be
// seen before finish(), which replaces the checkpoint of that name, if there is one, at once: see
// commit_bundle(). Not thread-safe.
class BundleWriter {
 public:
  // Opens the data file, aside, and makes the directory where there is none.
  static Result<std::unique_ptr<BundleWriter>> create(FileSystem& fs, std::string prefix);
  // Removes what was not finished.
  ~BundleWriter();

  // Adds a tensor (host memory, every type but resources and variants: UNIMPLEMENTED).
  // INVALID_ARGUMENT for a name that is empty or was there before.
  Status add(std::string_view name, const Tensor& tensor);
  // Adds the elements of `slice` of a tensor of shape `whole`. INVALID_ARGUMENT when the sizes do
  // not fit, when other slices of that name are of another tensor, and where two overlap.
  Status add_slice(std::string_view name, const Shape& whole, const TensorSlice& slice,
                   const Tensor& elements);
  // Puts everything on the disk and makes it the checkpoint. At most once, last.
  Status finish();

 private:
  BundleWriter(FileSystem& fs, std::string prefix);
  Status add_entry(const std::string& key, std::string_view name, const Tensor& tensor);
  Status write_elements(const Tensor& tensor, BundleEntry& entry);
  Status write_strings(const Tensor& tensor, BundleEntry& entry);
  Status append(std::string_view bytes);

  FileSystem& fs_;
  const std::string prefix_;
  const std::string data_aside_;
  Ref<WritableFile> file_;
  uint64_t offset_ = 0;
  BundleIndex index_;
};

// Makes the checkpoints `parts` one, `prefix`: their data files are moved, not copied, so the parts
// are gone. Slices of one tensor may lie in several of them. INVALID_ARGUMENT for tensors that are
// in two, or in slices that do not fit together; nothing has happened then.
Status merge_bundles(FileSystem& fs, const std::vector<std::string>& parts,
                     const std::string& prefix);

}  // namespace millrace
