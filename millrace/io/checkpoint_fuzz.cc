// Checkpoints of both versions with any entries: opening, listing and reading whole tensors and
// slices gives tensors of the shapes that were listed, or an error that is the file's fault.
//
// The input is a byte of choices; entries, each the key's length in a byte, the key, the value's
// length in two, the value; after a length of 255 the bytes of the data file. Checksums of tensors
// are made right where asked, since no fuzzer finds one.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "millrace/base/check.h"
#include "millrace/base/file_systems.h"
#include "millrace/io/bundle_index.h"
#include "millrace/io/checkpoint_reader.h"
#include "millrace/io/crc32c.h"
#include "millrace/io/table.h"

namespace millrace {
namespace {

const std::string kPrefix = "checkpoint_fuzz/model";

std::map<std::string, std::string> take_entries(std::string_view& bytes) {
  std::map<std::string, std::string> entries;
  while (!bytes.empty()) {
    const size_t key_size = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    if (key_size == 255 || bytes.size() < key_size + 2) break;
    const std::string_view key = bytes.substr(0, key_size);
    bytes.remove_prefix(key_size);
    const size_t value_size =
        static_cast<uint8_t>(bytes[0]) | static_cast<size_t>(static_cast<uint8_t>(bytes[1])) << 8;
    bytes.remove_prefix(2);
    entries[std::string(key)] = bytes.substr(0, value_size);
    bytes.remove_prefix(std::min(value_size, bytes.size()));
  }
  return entries;
}

// The entry with the checksum of the bytes that it names.
std::string with_checksum(const std::string& value, std::string_view data) {
  Result<BundleEntry> entry = BundleEntry::decode(value);
  if (!entry.ok() || entry->offset > data.size() || entry->size > data.size() - entry->offset) {
    return value;
  }
  entry->crc = crc32c_mask(crc32c(data.substr(entry->offset, entry->size)));
  return entry->encode();
}

void store(const std::string& path, FunctionRef<Status(Ref<WritableFile>)> write) {
  Ref<WritableFile> file = memory_file_system().open_writable(path).value();
  MR_CHECK_OK(write(file));
  MR_CHECK_OK(file->close());
}

void read_slices(const CheckpointReader& reader, const StoredTensor& stored, uint8_t choice) {
  std::vector<TensorSlice::Extent> extents;
  for (const int64_t size : stored.shape.dims()) {
    const int64_t start = size == 0 ? 0 : choice % size;
    extents.push_back({start, (size - start + choice % 2) / 2});
  }
  const TensorSlice slice(std::move(extents));
  Result<TensorSlice> box = slice.within(stored.shape);
  if (!box.ok() || !reader.check_present(stored, slice).ok()) return;
  Result<Tensor> out = Tensor::allocate(stored.dtype, box->shape().value());
  if (out.ok()) (void)reader.read(stored, slice, *out).ok();
}

void run(std::string_view bytes) {
  if (bytes.empty()) return;
  const auto choice = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  std::map<std::string, std::string> entries = take_entries(bytes);
  const bool old = (choice & 1) != 0;
  if (old) (void)memory_file_system().remove(index_path(kPrefix)).ok();
  store(old ? kPrefix : index_path(kPrefix), [&](Ref<WritableFile> file) -> Status {
    TableWriter table(std::move(file));
    for (auto& [key, value] : entries) {
      const bool mend = !old && (choice & 2) != 0 && !key.empty();
      MR_TRY(table.add(key, mend ? with_checksum(value, bytes) : value));
    }
    return table.finish();
  });
  for (const auto& [shard, shards] : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)}) {
    store(data_path(kPrefix, shard, shards),
          [&](const Ref<WritableFile>& file) { return file->append(bytes); });
  }
  Result<Ref<CheckpointReader>> reader = CheckpointReader::open(memory_file_system(), kPrefix);
  if (!reader.ok()) {
    const Code code = reader.status().code();
    MR_CHECK(code == Code::kDataLoss || code == Code::kUnimplemented);
    return;
  }
  int left = 20;
  for (const StoredTensor& stored : (*reader)->tensors()) {
    if (--left < 0) break;
    MR_CHECK((*reader)->find(stored.name) == &stored);
    Result<Tensor> tensor = (*reader)->read(stored.name);
    if (tensor.ok()) MR_CHECK(tensor->shape() == stored.shape && tensor->dtype() == stored.dtype);
    read_slices(**reader, stored, choice);
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
