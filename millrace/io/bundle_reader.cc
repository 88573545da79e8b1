#include "millrace/io/bundle_reader.h"

#include <algorithm>

#include "millrace/io/coding.h"
#include "millrace/io/crc32c.h"
#include "millrace/tensor/element_patterns.h"

namespace millrace {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

bool is_slice_key(std::string_view key) { return key.starts_with('\0'); }

}  // namespace

Result<Ref<CheckpointReader>> BundleReader::open(FileSystem& fs, const std::string& prefix) {
  constexpr int kTries = 4;
  for (int i = 1;; ++i) {
    MR_TRY_ASSIGN(BundleIndex index, BundleIndex::read(fs, index_path(prefix)));
    Ref<BundleReader> reader(new BundleReader(prefix, std::move(index)));
    // A missing file may be one that was replaced after the index had been read. An index without
    // its data files still says what was in them.
    if (!reader->open_data_files(fs) && i < kTries) continue;
    reader->list_tensors();
    return Ref<CheckpointReader>(std::move(reader));
  }
}

bool BundleReader::open_data_files(FileSystem& fs) {
  bool all = true;
  for (const auto& [key, entry] : index_.entries) {
    if (!entry.slices.empty() || data_.contains(entry.shard)) continue;
    DataFile data{.path = data_path(prefix(), entry.shard, index_.num_shards)};
    Result<Ref<ReadableFile>> file = fs.open_readable(data.path);
    data.status = file.status();
    if (file.ok()) {
      Result<uint64_t> size = (*file)->size();
      data.status = size.status();
      if (size.ok()) data.size = *size;
      data.file = std::move(*file);
    }
    all = all && data.status.ok();
    data_.emplace(entry.shard, std::move(data));
  }
  return all;
}

void BundleReader::list_tensors() {
  std::vector<StoredTensor> tensors;
  for (const auto& [key, entry] : index_.entries) {
    if (!is_slice_key(key)) tensors.push_back({key, entry.dtype, entry.shape, entry.slices});
  }
  set_tensors(std::move(tensors));
}

std::vector<std::string> BundleReader::files() const {
  std::vector<std::string> files = {index_path(prefix())};
  for (const auto& [shard, data] : data_) files.push_back(data.path);
  return files;
}

Result<const BundleEntry*> BundleReader::entry_of(const StoredTensor& tensor,
                                                  const SlicePiece& piece) const {
  const bool whole = tensor.slices.empty();
  const auto place =
      index_.entries.find(whole ? tensor.name : slice_key(tensor.name, tensor.slices[piece.index]));
  if (place == index_.entries.end() || !place->second.slices.empty() ||
      place->second.dtype != tensor.dtype) {
    return data_loss("'", index_path(prefix()), "' does not say where the slice '",
                     tensor.slices[piece.index], "' of '", tensor.name, "' is");
  }
  return &place->second;
}

Status BundleReader::check_entry(const std::string& name, const BundleEntry& entry,
                                 const Shape& shape) const {
  const DataFile& data = data_.at(entry.shard);
  if (!data.status.ok()) return data.status.with_prefix(str_cat("tensor '", name, "'"));
  if (entry.offset > data.size || entry.size > data.size - entry.offset) {
    return data_loss("tensor '", name, "': '", data.path, "' has ", data.size,
                     " bytes, the tensor's are ", entry.size, " at ", entry.offset);
  }
  const auto count = static_cast<uint64_t>(shape.num_elements());
  if (entry.dtype == DType::kString) {
    // A length of a byte at the least for each, and their checksum.
    if (entry.size >= 4 && count <= entry.size - 4) return ok_status();
  } else if (is_plain(entry.dtype)) {
    uint64_t expected;
    if (!__builtin_mul_overflow(count, uint64_t{dtype_size(entry.dtype)}, &expected) &&
        expected == entry.size) {
      return ok_status();
    }
  } else {
    return unimplemented("tensor '", name, "' of ", entry.dtype, " in '", data.path,
                         "': such tensors are not read from checkpoints");
  }
  return data_loss("tensor '", name, "': ", entry.dtype, shape, " does not have the ", entry.size,
                   " bytes that '", index_path(prefix()), "' says");
}

Status BundleReader::check_present(const StoredTensor& tensor, const TensorSlice& slice) const {
  MR_TRY_ASSIGN(const TensorSlice box, slice.within(tensor.shape));
  MR_TRY_ASSIGN(const std::vector<SlicePiece> pieces, pieces_of(tensor, box));
  uint64_t needed = 0;
  for (const SlicePiece& piece : pieces) {
    MR_TRY_ASSIGN(const BundleEntry* entry, entry_of(tensor, piece));
    MR_TRY_ASSIGN(const Shape shape, piece.box.shape());
    MR_TRY(check_entry(tensor.name, *entry, shape));
    needed += entry->size;
  }
  // No byte belongs to two slices.
  uint64_t there = 0;
  for (const auto& [shard, data] : data_) there += data.size;
  if (needed > there) {
    return data_loss("tensor '", tensor.name, "': its slices need ", needed,
                     " bytes, the data files of '", prefix(), "' have ", there);
  }
  return ok_status();
}

Status BundleReader::read(const StoredTensor& tensor, const TensorSlice& slice, Tensor& out) const {
  MR_TRY(check_present(tensor, slice));
  MR_TRY_ASSIGN(const TensorSlice box, slice.within(tensor.shape));
  MR_TRY_ASSIGN(const Shape wanted, box.shape());
  if (out.dtype() != tensor.dtype || out.shape() != wanted) {
    return invalid_argument("tensor '", tensor.name, "' is ", tensor.dtype, wanted,
                            ", to be read into ", out.dtype(), out.shape());
  }
  MR_TRY_ASSIGN(const std::vector<SlicePiece> pieces, pieces_of(tensor, box));
  for (const SlicePiece& piece : pieces) {
    MR_TRY_ASSIGN(const BundleEntry* entry, entry_of(tensor, piece));
    if (piece.box == box) return read_piece(tensor.name, *entry, out);
    MR_TRY_ASSIGN(const Shape shape, piece.box.shape());
    MR_TRY_ASSIGN(Tensor part, Tensor::allocate(tensor.dtype, shape));
    MR_TRY(read_piece(tensor.name, *entry, part));
    copy_overlap(part, piece.box, box, out);
  }
  return ok_status();
}

Status BundleReader::read_bytes(const DataFile& data, uint64_t offset, size_t size, char* out,
                                const std::string& name) const {
  MR_TRY_ASSIGN(const size_t n, data.file->read_at(offset, size, out));
  if (n == size) return ok_status();
  return data_loss("tensor '", name, "': '", data.path, "' became shorter while it was read");
}

Status BundleReader::read_piece(const std::string& name, const BundleEntry& entry,
                                Tensor& out) const {
  if (entry.dtype == DType::kString) return read_strings(name, entry, out);
  const DataFile& data = data_.at(entry.shard);
  char* to = static_cast<char*>(out.mutable_raw());
  uint32_t crc = 0;
  for (uint64_t done = 0; done < entry.size;) {
    const size_t size = std::min<uint64_t>(kChunkBytes, entry.size - done);
    MR_TRY(read_bytes(data, entry.offset + done, size, to + done, name));
    crc = crc32c_extend(crc, {to + done, size});
    done += size;
  }
  if (crc32c_mask(crc) != entry.crc) {
    return data_loss("tensor '", name, "': the checksum of its bytes in '", data.path,
                     "' is wrong");
  }
  repair_elements(out);
  return ok_status();
}

Status BundleReader::read_strings(const std::string& name, const BundleEntry& entry,
                                  Tensor& out) const {
  const DataFile& data = data_.at(entry.shard);
  const auto damaged = [&] {
    return data_loss("tensor '", name, "': its strings in '", data.path, "' are damaged");
  };
  std::string bytes(entry.size, '\0');
  MR_TRY(read_bytes(data, entry.offset, bytes.size(), bytes.data(), name));
  std::string_view rest = bytes;
  std::vector<uint64_t> lengths(static_cast<size_t>(out.num_elements()));
  uint32_t crc = 0;
  uint64_t total = 0;
  for (uint64_t& length : lengths) {
    if (!get_varint(rest, length) || length > bytes.size() - total) return damaged();
    total += length;
    std::string fixed;
    put_fixed32(fixed, static_cast<uint32_t>(length));
    if (length > UINT32_MAX) put_fixed32(fixed, static_cast<uint32_t>(length >> 32));
    crc = crc32c_extend(crc, fixed);
  }
  if (rest.size() < 4 || load_fixed32(rest.data()) != crc32c_mask(crc) ||
      total != rest.size() - 4) {
    return damaged();
  }
  if (crc32c_mask(crc32c_extend(crc, rest)) != entry.crc) return damaged();
  rest.remove_prefix(4);
  std::string* to = out.mutable_data<std::string>().data();
  for (const uint64_t length : lengths) {
    *to++ = rest.substr(0, length);
    rest.remove_prefix(length);
  }
  return ok_status();
}

}  // namespace millrace
