#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/function.h"
#include "millrace/base/status.h"

// Sorted string tables: immutable files of keys and values in the order of the keys, in blocks with
// checksums. The format is LevelDB's, which TensorFlow writes checkpoints' indexes in; see
// docs/checkpoints.md.

namespace millrace {

// Writes a table to a file. Bytes are TensorFlow's for the same entries.
class TableWriter {
 public:
  // Appends to `file`, which is empty and stays open.
  explicit TableWriter(Ref<WritableFile> file);
  ~TableWriter();

  // Keys come in increasing order of their bytes, each once (INVALID_ARGUMENT otherwise).
  Status add(std::string_view key, std::string_view value);
  // Writes what is left; nothing is added after it.
  Status finish();

 private:
  class Block;
  struct Handle {
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  Result<Handle> write_block(Block& block);
  Status end_block();
  void add_index_entry(std::string_view key);

  const Ref<WritableFile> file_;
  uint64_t offset_ = 0;
  std::unique_ptr<Block> data_;
  std::unique_ptr<Block> index_;
  std::string last_key_;
  bool any_ = false;
  // The last block that was written waits for its entry in the index until the next key is known:
  // a short key between the two serves.
  bool pending_ = false;
  Handle pending_handle_;
};

// Reads a table. DATA_LOSS naming the file for whatever a writer would not have written: checksums,
// sizes, order. Immutable, thread-safe.
class TableReader {
 public:
  static Result<std::unique_ptr<TableReader>> open(FileSystem& fs, const std::string& path);

  // Calls `visit` with every entry in order, until it fails. One block is in memory at a time.
  Status visit(FunctionRef<Status(std::string_view key, std::string_view value)> visit) const;
  // The value of a key; NOT_FOUND when there is none.
  Result<std::string> find(std::string_view key) const;
  // Calls `visit` with the number of each of `keys` (in increasing order, each once) that is there,
  // and its value. Reads each block once, however many keys it has.
  Status find_all(std::span<const std::string> keys,
                  FunctionRef<Status(size_t number, std::string_view value)> visit) const;
  const std::string& path() const { return path_; }
  // Of the whole file.
  uint64_t bytes() const { return size_; }

 private:
  struct BlockPlace {
    std::string last_key;  // not before any key of the block, before all of the next one
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  TableReader(Ref<ReadableFile> file, std::string path, uint64_t size)
      : file_(std::move(file)), path_(std::move(path)), size_(size) {}
  Status damaged(std::string_view what) const;
  Status read_index();
  Result<std::string> read_block(uint64_t offset, uint64_t size) const;
  // Calls `visit` with every entry; `last_key` (may be null) becomes the last one's key.
  Status visit_block(std::string_view block,
                     FunctionRef<Status(std::string_view, std::string_view)> visit,
                     std::string* last_key = nullptr) const;

  const Ref<ReadableFile> file_;
  const std::string path_;
  const uint64_t size_;
  std::vector<BlockPlace> blocks_;
};

}  // namespace millrace
