#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/io/tensor_slice.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// What a checkpoint says of one tensor.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;
  std::vector<TensorSlice> slices;  // in which it is stored; none: in one piece
};

// Reads tensors from a checkpoint of either version. Files may be anything: what they say is
// checked against the bytes that are there before memory is asked for, and checksums before data
// is handed out (DATA_LOSS). Immutable, thread-safe.
class CheckpointReader : public RefCounted {
 public:
  // A file "x.safetensors"; the checkpoint PREFIX.index of version 2, else the files of version 1
  // whose names match `prefix`, a pattern. NOT_FOUND when there is neither.
  static Result<Ref<CheckpointReader>> open(FileSystem& fs, const std::string& prefix);
  // Version 1 alone.
  static Result<Ref<CheckpointReader>> open_v1(FileSystem& fs, const std::string& pattern);

  // Every tensor, in the order of their names.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // null when there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  // The tensor of that name; NOT_FOUND, with the nearest names there are.
  Result<const StoredTensor*> get(std::string_view name) const;

  // Reads elements of a tensor of this reader into `out`, of its dtype: those of `slice`, whose
  // shape `out` has. They are put together from what is stored; INVALID_ARGUMENT where some are
  // not.
  virtual Status read(const StoredTensor& tensor, const TensorSlice& slice, Tensor& out) const = 0;
  // The whole tensor of that name.
  Result<Tensor> read(std::string_view name) const;

  // OK when a tensor that `slice` of `tensor` fits may be allocated: the files have that many
  // bytes.
  virtual Status check_present(const StoredTensor& tensor, const TensorSlice& slice) const = 0;

  // The files that are read.
  virtual std::vector<std::string> files() const = 0;
  const std::string& prefix() const { return prefix_; }

 protected:
  explicit CheckpointReader(std::string prefix) : prefix_(std::move(prefix)) {}
  // `tensors` in any order, each name once.
  void set_tensors(std::vector<StoredTensor> tensors);

 private:
  const std::string prefix_;
  std::vector<StoredTensor> tensors_;
};

// One stored piece that a reader needs for a slice.
struct SlicePiece {
  size_t index = 0;  // in StoredTensor::slices; 0 for a tensor in one piece
  TensorSlice box;   // where it lies; lengths are numbers
};
// The pieces of `tensor` that hold elements of `box` (lengths are numbers), which together are all
// of them; INVALID_ARGUMENT where elements are not stored or are stored twice.
Result<std::vector<SlicePiece>> pieces_of(const StoredTensor& tensor, const TensorSlice& box);

}  // namespace millrace
