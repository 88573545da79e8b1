#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/io/tensor_slice.h"
#include "millrace/tensor/dtype.h"
#include "millrace/tensor/shape.h"

// The index of a checkpoint of version 2 (TensorBundle), which says where in its data files tensors
// lie; see docs/checkpoints.md.

namespace millrace {

struct BundleEntry {
  DType dtype = DType::kInvalid;
  Shape shape;
  // Of a tensor that is stored in slices, each under a key of its own (slice_key), and nothing of
  // what follows.
  std::vector<TensorSlice> slices;
  int32_t shard = 0;  // which data file
  uint64_t offset = 0;
  uint64_t size = 0;
  uint32_t crc = 0;  // masked

  std::string encode() const;
  // DATA_LOSS for what no writer writes.
  static Result<BundleEntry> decode(std::string_view bytes);
};

struct BundleIndex {
  int32_t num_shards = 1;
  std::map<std::string, BundleEntry> entries;  // by key; slices among them

  // Writes the file and syncs it.
  Status write(FileSystem& fs, const std::string& path) const;
  // DATA_LOSS for a damaged file, UNIMPLEMENTED for one of another byte order or a later version.
  static Result<BundleIndex> read(FileSystem& fs, const std::string& path);
};

// "PREFIX.index" and "PREFIX.data-00001-of-00002".
std::string index_path(std::string_view prefix);
std::string data_path(std::string_view prefix, int32_t shard, int32_t num_shards);

// A path beside `path` that no other call in any process of this machine gives, for what is not
// finished.
std::string path_aside(std::string_view path);

// Makes a checkpoint of synced files: `data_files` become its shards, in order, and the index is
// written. There is the one that was there before or this one, whole, at any moment and whatever
// crashes: a name of a data file is never used twice in a row, so the index, which is renamed last,
// never meets the data of another. What the checkpoint before had is removed. Calls in one process
// take turns; processes do not.
Status commit_bundle(FileSystem& fs, const std::string& prefix,
                     const std::vector<std::string>& data_files, BundleIndex index);

}  // namespace millrace
