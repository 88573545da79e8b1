#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/io/checkpoint_reader.h"

// Files of the safetensors format: a header of JSON and the elements; see docs/checkpoints.md.

namespace millrace {

using SafetensorsMetadata = std::map<std::string, std::string>;

// What the header says of one tensor.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;
  uint64_t begin = 0;  // from the end of the header
  uint64_t end = 0;
};
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // as they lie in the file
  SafetensorsMetadata metadata;
  // Reads the JSON. Tensors must lie one after the other in `data_bytes`, with their sizes, none
  // over another and nothing between; names come once. DATA_LOSS says what is wrong.
  static Result<SafetensorsHeader> parse(std::string_view json, uint64_t data_bytes);
};

// Reads such a file. What read() gives is a copy; a file that became shorter meanwhile is
// DATA_LOSS. Thread-safe.
class SafetensorsReader final : public CheckpointReader {
 public:
  static Result<Ref<SafetensorsReader>> open(FileSystem& fs, const std::string& path);

  // A tensor over the file's own bytes, which nothing was copied for, and which outlives the
  // reader; where they do not lie as the type needs it, and of bools, a copy. The file is mapped,
  // and stays so while such a tensor lives: whoever cuts it short then ends the process, see
  // ReadableFile::map(). NOT_FOUND, with the nearest names there are.
  Result<Tensor> view(std::string_view name) const;

  using CheckpointReader::read;
  Status read(const StoredTensor& tensor, const TensorSlice& slice, Tensor& out) const override;
  Status check_present(const StoredTensor& tensor, const TensorSlice& slice) const override;
  std::vector<std::string> files() const override { return {prefix()}; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

 private:
  using CheckpointReader::CheckpointReader;

  struct Place {
    uint64_t offset = 0;  // in the file
    uint64_t size = 0;
  };
  Result<Ref<FileBytes>> mapped() const;
  Status read_bytes(uint64_t offset, size_t size, void* out) const;

  Ref<ReadableFile> file_;
  uint64_t file_bytes_ = 0;
  std::map<std::string, Place, std::less<>> places_;
  SafetensorsMetadata metadata_;

  mutable Mutex mu_;
  mutable Ref<FileBytes> bytes_ MR_GUARDED_BY(mu_);  // null: nobody asked for a view yet
};

// Writes a file tensor by tensor, so that one need be in memory at a time. The file appears whole,
// at finish(), or not at all. Not thread-safe.
class SafetensorsWriter {
 public:
  // `entries`: names, types and shapes of all that will be written. INVALID_ARGUMENT for a name
  // that comes twice or is no UTF-8, UNIMPLEMENTED for a type that the format has not: strings,
  // quantised numbers.
  static Result<std::unique_ptr<SafetensorsWriter>> create(
      FileSystem& fs, const std::string& path, std::vector<SafetensorsEntry> entries,
      const SafetensorsMetadata& metadata = {});
  // Removes what was written, unless finish() was called.
  ~SafetensorsWriter();

  // As they lie in the file, which is the order to add them in.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  // Writes the next one. INVALID_ARGUMENT when type or shape are not those of its entry.
  Status add(const Tensor& tensor);
  // FAILED_PRECONDITION when some are missing.
  Status finish();

 private:
  SafetensorsWriter(FileSystem& fs, std::string path, std::vector<SafetensorsEntry> entries);

  FileSystem& fs_;
  const std::string path_, aside_;
  std::vector<SafetensorsEntry> entries_;
  Ref<WritableFile> file_;
  size_t added_ = 0;
};

// Writes a file at once, with the errors of SafetensorsWriter.
Status write_safetensors(FileSystem& fs, const std::string& path,
                         const std::vector<std::pair<std::string, Tensor>>& tensors,
                         const SafetensorsMetadata& metadata = {});

// The format's name of a type, "F32"; empty when it has none. And back: kInvalid.
std::string_view safetensors_type(DType dtype);
DType safetensors_dtype(std::string_view name);

}  // namespace millrace
