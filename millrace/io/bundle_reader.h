#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/io/bundle_index.h"
#include "millrace/io/checkpoint_reader.h"

namespace millrace {

// Reads a checkpoint of version 2. A checkpoint that is saved over while it is open goes on as it
// was: data files are opened with the index, and again when it changed meanwhile.
class BundleReader final : public CheckpointReader {
 public:
  static Result<Ref<CheckpointReader>> open(FileSystem& fs, const std::string& prefix);

  using CheckpointReader::read;
  Status read(const StoredTensor& tensor, const TensorSlice& slice, Tensor& out) const override;
  Status check_present(const StoredTensor& tensor, const TensorSlice& slice) const override;
  std::vector<std::string> files() const override;

 private:
  struct DataFile {
    std::string path;
    Ref<ReadableFile> file;  // null: see status
    Status status;
    uint64_t size = 0;
  };
  BundleReader(std::string prefix, BundleIndex index)
      : CheckpointReader(std::move(prefix)), index_(std::move(index)) {}
  // Whether all were there.
  bool open_data_files(FileSystem& fs);
  void list_tensors();
  Result<const BundleEntry*> entry_of(const StoredTensor& tensor, const SlicePiece& piece) const;
  // OK when the entry's bytes are there and as many as its shape needs.
  Status check_entry(const std::string& name, const BundleEntry& entry, const Shape& shape) const;
  Status read_piece(const std::string& name, const BundleEntry& entry, Tensor& out) const;
  Status read_strings(const std::string& name, const BundleEntry& entry, Tensor& out) const;
  Status read_bytes(const DataFile& data, uint64_t offset, size_t size, char* out,
                    const std::string& name) const;

  const BundleIndex index_;
  std::map<int32_t, DataFile> data_;  // of the shards that entries name
};

}  // namespace millrace
