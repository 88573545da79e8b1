// Any bytes at all, as a safetensors file: tensors that lie within it, or DATA_LOSS. What was read
// can be written and read again.

#include <cstdint>
#include <string_view>

#include "millrace/base/check.h"
#include "millrace/base/file_systems.h"
#include "millrace/io/safetensors.h"

namespace millrace {
namespace {

constexpr const char* kPath = "safetensors_fuzz/model";

void run(std::string_view bytes) {
  FileSystem& fs = memory_file_system();
  {
    Ref<WritableFile> file = fs.open_writable(kPath).value();
    MR_CHECK_OK(file->append(bytes));
    MR_CHECK_OK(file->close());
  }
  Result<Ref<SafetensorsReader>> reader = SafetensorsReader::open(fs, kPath);
  if (!reader.ok()) {
    MR_CHECK(reader.status().code() == Code::kDataLoss);
    return;
  }
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const StoredTensor& stored : (*reader)->tensors()) {
    tensors.emplace_back(stored.name, (*reader)->view(stored.name).value());
    MR_CHECK(bit_equal(tensors.back().second, (*reader)->read(stored.name).value()));
  }
  MR_CHECK_OK(write_safetensors(fs, kPath, tensors, (*reader)->metadata()));
  const Ref<SafetensorsReader> again = SafetensorsReader::open(fs, kPath).value();
  MR_CHECK(again->metadata() == (*reader)->metadata());
  for (const auto& [name, tensor] : tensors) {
    MR_CHECK(bit_equal(again->read(name).value(), tensor));
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
