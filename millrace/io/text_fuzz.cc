// Any bytes at all, as a text: the lines are those that a simple reader finds, whatever the size of
// chunks, compressed or not, and a reader that goes back to where it was reads on the same.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/check.h"
#include "millrace/base/file_systems.h"
#include "millrace/io/compression.h"
#include "millrace/io/input_stream.h"

namespace millrace {
namespace {

constexpr const char* kPath = "text_fuzz/text";

std::vector<std::string> simple_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    std::erase(line, '\r');
    const bool last = end == std::string_view::npos;
    if (!last || !line.empty()) lines.push_back(std::move(line));
    text.remove_prefix(last ? text.size() : end + 1);
  }
  return lines;
}

void store(std::string_view bytes) {
  Ref<WritableFile> file = memory_file_system().open_writable(kPath).value();
  MR_CHECK_OK(file->append(bytes));
  MR_CHECK_OK(file->close());
}

std::unique_ptr<InputStream> open(Compression compression, size_t chunk) {
  return InputStream::make(memory_file_system().open_readable(kPath).value(),
                           {.compression = compression, .chunk_bytes = chunk})
      .value();
}

void read_text(std::string_view text, Compression compression, size_t chunk) {
  const std::vector<std::string> expected = simple_lines(text);
  const std::unique_ptr<InputStream> input = open(compression, chunk);
  LineReader reader(*input);
  uint64_t middle = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i == expected.size() / 2) middle = input->position();
    MR_CHECK(reader.next().value() == expected[i]);
  }
  MR_CHECK(reader.next().status().code() == Code::kOutOfRange);
  MR_CHECK_OK(input->seek(middle));
  MR_CHECK(input->position() == middle);
  for (size_t i = expected.size() / 2; i < expected.size(); ++i) {
    MR_CHECK(reader.next().value() == expected[i]);
  }
}

// As compressed data, which they hardly are.
void read_damaged(Compression compression, size_t chunk) {
  const std::unique_ptr<InputStream> input = open(compression, chunk);
  LineReader reader(*input);
  for (int i = 0; i < 1000 && reader.next().ok(); ++i) {
  }
  (void)input->seek(input->position() / 2).ok();
  (void)reader.next().ok();
}

void run(std::string_view bytes) {
  if (bytes.empty()) return;
  const auto choice = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  const size_t chunk = size_t{1} + choice / 8;
  const Compression kinds[] = {Compression::kNone, Compression::kZlib, Compression::kGzip};
  const Compression compression = kinds[choice % 3];
  if (compression == Compression::kNone) {
    store(bytes);
    return read_text(bytes, compression, chunk);
  }
  if ((choice & 4) != 0) {
    store(bytes);
    return read_damaged(compression, chunk);
  }
  std::string packed;
  const auto deflater = Deflater::make({.kind = compression}).value();
  MR_CHECK_OK(deflater->deflate(bytes, Deflater::Mode::kFinish, packed));
  MR_CHECK(inflate_all(packed, compression).value() == bytes);
  store(packed);
  read_text(bytes, compression, chunk);
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
