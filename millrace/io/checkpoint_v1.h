#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/io/checkpoint_reader.h"
#include "millrace/io/table.h"

// Checkpoints of version 1: tables that hold the tensors themselves, as messages. Kept for programs
// that still save them.

namespace millrace {

class V1Reader final : public CheckpointReader {
 public:
  // Of the files whose names match `pattern` in its last part; NOT_FOUND when there are none.
  static Result<Ref<CheckpointReader>> open(FileSystem& fs, const std::string& pattern);

  using CheckpointReader::read;
  Status read(const StoredTensor& tensor, const TensorSlice& slice, Tensor& out) const override;
  Status check_present(const StoredTensor& tensor, const TensorSlice& slice) const override;
  std::vector<std::string> files() const override;

 private:
  // Of each tensor, by name: for each slice the table that has it, and the slice as stored.
  struct Place {
    size_t table;
    TensorSlice slice;
  };

  explicit V1Reader(std::string pattern) : CheckpointReader(std::move(pattern)) {}
  Status add_table(std::unique_ptr<TableReader> table, std::map<std::string, StoredTensor>& found);
  // The elements of a piece, of the bytes that a table has for it.
  Result<Tensor> parse_piece(const StoredTensor& tensor, const SlicePiece& piece,
                             std::string_view value) const;
  Status damaged(const StoredTensor& tensor, const SlicePiece& piece, std::string_view what) const;

  std::vector<std::unique_ptr<TableReader>> tables_;
  std::map<std::string, std::vector<Place>> places_;
};

// One slice of a tensor to be saved.
struct V1Slice {
  std::string name;
  Shape whole;
  TensorSlice slice;
  Tensor elements;  // of the slice's shape
};
// Writes a file of version 1, which appears whole or not at all. INVALID_ARGUMENT for slices that
// do not fit together.
Status write_v1(FileSystem& fs, const std::string& path, const std::vector<V1Slice>& slices);

}  // namespace millrace
