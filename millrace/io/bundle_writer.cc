#include "millrace/io/bundle_writer.h"

#include <algorithm>

#include "millrace/io/coding.h"
#include "millrace/io/crc32c.h"
#include "millrace/tensor/snapshot_copy.h"

namespace millrace {
namespace {

// Small enough to be in the cache still when it is written after it was summed.
constexpr size_t kChunkBytes = size_t{1} << 18;

std::string_view bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

}  // namespace

BundleWriter::BundleWriter(FileSystem& fs, std::string prefix)
    : fs_(fs), prefix_(std::move(prefix)), data_aside_(path_aside(data_path(prefix_, 0, 1))) {}

BundleWriter::~BundleWriter() {
  if (!file_) return;
  (void)file_->close().ok();
  (void)fs_.remove(data_aside_).ok();
}

Result<std::unique_ptr<BundleWriter>> BundleWriter::create(FileSystem& fs, std::string prefix) {
  std::unique_ptr<BundleWriter> writer(new BundleWriter(fs, std::move(prefix)));
  MR_TRY(fs.mkdir_all(directory_of(writer->prefix_)));
  MR_TRY_ASSIGN(writer->file_, fs.open_writable(writer->data_aside_));
  return writer;
}

Status BundleWriter::append(std::string_view bytes) {
  offset_ += bytes.size();
  return file_->append(bytes);
}

Status BundleWriter::write_elements(const Tensor& tensor, BundleEntry& entry) {
  uint32_t crc = 0;
  // A copy is summed and written: a reference variable may change between the two.
  std::string chunk;
  for (std::string_view rest = bytes_of(tensor); !rest.empty();) {
    SnapshotCopy::give_way();
    chunk.assign(rest.substr(0, kChunkBytes));
    crc = crc32c_extend(crc, chunk);
    MR_TRY(append(chunk));
    rest.remove_prefix(chunk.size());
  }
  entry.crc = crc32c_mask(crc);
  return ok_status();
}

// The lengths, their checksum, then all bytes.
Status BundleWriter::write_strings(const Tensor& tensor, BundleEntry& entry) {
  std::string lengths;
  uint32_t crc = 0;
  for (const std::string& s : tensor.data<std::string>()) {
    put_varint(lengths, s.size());
    std::string fixed;
    if (s.size() <= UINT32_MAX) {
      put_fixed32(fixed, static_cast<uint32_t>(s.size()));
    } else {
      put_fixed64(fixed, s.size());
    }
    crc = crc32c_extend(crc, fixed);
  }
  std::string sum;
  put_fixed32(sum, crc32c_mask(crc));
  crc = crc32c_extend(crc, sum);
  MR_TRY(append(lengths));
  MR_TRY(append(sum));
  for (const std::string& s : tensor.data<std::string>()) {
    crc = crc32c_extend(crc, s);
    MR_TRY(append(s));
  }
  entry.crc = crc32c_mask(crc);
  return ok_status();
}

Status BundleWriter::add_entry(const std::string& key, std::string_view name,
                               const Tensor& tensor) {
  if (name.empty()) return invalid_argument("a tensor in a checkpoint must have a name");
  if (!tensor.valid()) return invalid_argument("no tensor to save as '", name, "'");
  if (!is_plain(tensor.dtype()) && tensor.dtype() != DType::kString) {
    return unimplemented("a tensor of ", tensor.dtype(), " cannot be saved in a checkpoint: '",
                         name, "'");
  }
  const auto [place, fresh] = index_.entries.try_emplace(key);
  if (!fresh) return invalid_argument("Adding duplicate key: ", name, " to '", prefix_, "'");
  BundleEntry& entry = place->second;
  entry.dtype = tensor.dtype();
  entry.shape = tensor.shape();
  entry.offset = offset_;
  MR_TRY(tensor.dtype() == DType::kString ? write_strings(tensor, entry)
                                          : write_elements(tensor, entry));
  entry.size = offset_ - entry.offset;
  return ok_status();
}

Status BundleWriter::add(std::string_view name, const Tensor& tensor) {
  return add_entry(std::string(name), name, tensor);
}

Status BundleWriter::add_slice(std::string_view name, const Shape& whole, const TensorSlice& slice,
                               const Tensor& elements) {
  const auto context = [&] { return str_cat("slice of '", name, "'"); };
  Result<TensorSlice> box = slice.within(whole);
  if (!box.ok()) return box.status().with_prefix(context());
  MR_TRY_ASSIGN(const Shape shape, box->shape());
  if (shape != elements.shape()) {
    return invalid_argument("the slice '", slice, "' of '", name, "' has the shape ", shape,
                            ", the tensor to save has ", elements.shape());
  }
  if (shape == whole) return add(name, elements);
  const auto [place, fresh] = index_.entries.try_emplace(std::string(name));
  BundleEntry& entry = place->second;
  if (fresh) {
    entry.dtype = elements.dtype();
    entry.shape = whole;
  }
  if (!fresh && entry.slices.empty()) {
    return invalid_argument("Adding duplicate key: ", name, " to '", prefix_, "'");
  }
  if (entry.dtype != elements.dtype() || entry.shape != whole) {
    return invalid_argument("slices of '", name, "' must be of one tensor, got ", entry.dtype,
                            entry.shape, " and ", elements.dtype(), whole);
  }
  MR_TRY(check_disjoint(entry.slices, *box, whole).with_prefix(context()));
  entry.slices.push_back(slice);
  return add_entry(slice_key(name, slice), name, elements);
}

Status BundleWriter::finish() {
  MR_TRY(file_->sync());
  MR_TRY(file_->close());
  MR_TRY(commit_bundle(fs_, prefix_, {data_aside_}, std::move(index_)));
  file_ = nullptr;
  return ok_status();
}

}  // namespace millrace
