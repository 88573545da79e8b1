#include <cstddef>
#include <cstdint>
#include <string_view>

#include "millrace/base/file_systems.h"
#include "millrace/io/record_reader.h"

// The first byte chooses the compression and the size of chunks, the rest is the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size == 0) return 0;
  FileSystem& fs = memory_file_system();
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  {
    Ref<WritableFile> file = fs.open_writable("fuzz").value();
    MR_CHECK_OK(file->append(bytes));
    MR_CHECK_OK(file->close());
  }
  auto reader = RecordReader::make(fs.open_readable("fuzz").value(),
                                   {.compression = static_cast<Compression>(data[0] % 3),
                                    .chunk_bytes = size_t{1} + data[0],
                                    .max_record_bytes = 1 << 20});
  if (!reader.ok()) return 0;
  while ((*reader)->next().ok()) {
  }
  (void)(*reader)->seek(size / 2).ok();
  (void)(*reader)->next().ok();
  return 0;
}
