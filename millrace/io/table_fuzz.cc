// Any bytes at all, as a table, or, so that checksums do not end it at once, as a block of one,
// plain or compressed. Reading gives entries in order, or an error that is the file's fault; what
// was read can be written and read again.

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/base/check.h"
#include "millrace/base/file_systems.h"
#include "millrace/io/coding.h"
#include "millrace/io/crc32c.h"
#include "millrace/io/table.h"
#include "millrace/io/table_format.h"

namespace millrace {
namespace {

constexpr const char* kPath = "table_fuzz/table";

using Entries = std::vector<std::pair<std::string, std::string>>;

void append_block(std::string& file, std::string_view block, char compression) {
  const size_t begin = file.size();
  file.append(block);
  file.push_back(compression);
  put_fixed32(file, crc32c_mask(crc32c(std::string_view(file).substr(begin))));
}

// A table whose only block has these bytes.
std::string table_around(std::string_view block, char compression) {
  std::string file;
  append_block(file, block, compression);
  std::string handle;
  put_varint(handle, 0);
  put_varint(handle, block.size());
  std::string index = {0, 1, static_cast<char>(handle.size()), '\xFF'};
  index += handle;
  index.append("\0\0\0\0\1\0\0\0", 8);
  const uint64_t at = file.size();
  append_block(file, index, 0);
  std::string footer;
  for (const uint64_t number : {at, uint64_t{0}, at, uint64_t{index.size()}}) {
    put_varint(footer, number);
  }
  footer.resize(kFooterBytes - 8);
  put_fixed64(footer, kTableMagic);
  return file + footer;
}

void store(std::string_view bytes) {
  Ref<WritableFile> file = memory_file_system().open_writable(kPath).value();
  MR_CHECK_OK(file->append(bytes));
  MR_CHECK_OK(file->close());
}

Result<Entries> read() {
  MR_TRY_ASSIGN(const std::unique_ptr<TableReader> table,
                TableReader::open(memory_file_system(), kPath));
  Entries entries;
  size_t room = size_t{1} << 24;
  MR_TRY(table->visit([&](std::string_view key, std::string_view value) -> Status {
    if (key.size() + value.size() > room) return resource_exhausted("enough");
    room -= key.size() + value.size();
    MR_CHECK(entries.empty() || entries.back().first < key);
    entries.emplace_back(key, value);
    return ok_status();
  }));
  if (!entries.empty()) {
    const auto& [key, value] = entries[entries.size() / 2];
    MR_CHECK(table->find(key).value() == value);
  }
  return entries;
}

void run(std::string_view bytes) {
  if (bytes.empty()) return;
  const char kind = static_cast<char>(bytes.front() % 3);
  bytes.remove_prefix(1);
  store(kind == 2 ? std::string(bytes) : table_around(bytes, kind));
  Result<Entries> entries = read();
  if (!entries.ok()) {
    const Code code = entries.status().code();
    MR_CHECK(code == Code::kDataLoss || code == Code::kResourceExhausted);
    return;
  }
  Ref<WritableFile> file = memory_file_system().open_writable(kPath).value();
  TableWriter writer(file);
  for (const auto& [key, value] : *entries) MR_CHECK_OK(writer.add(key, value));
  MR_CHECK_OK(writer.finish());
  MR_CHECK_OK(file->close());
  MR_CHECK(read().value() == *entries);
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
