#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "millrace/base/file.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/io/compression.h"

namespace millrace {

struct InputStreamOptions {
  Compression compression = Compression::kNone;
  // How much is read from the file at once.
  size_t chunk_bytes = size_t{256} << 10;
};

// The bytes of a file in order, after compression was undone, a large piece at a time and without a
// copy for the caller. Memory grows with the bytes that were really there, never with what somebody
// expects. A file that grows is followed: what was an end is asked for again. Not thread-safe.
class InputStream {
 public:
  static Result<std::unique_ptr<InputStream>> make(Ref<ReadableFile> file,
                                                   const InputStreamOptions& options = {});
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  // The next bytes, not yet taken: `size` or more of them, fewer only where the input ends. Valid
  // until the next call that is not const. DATA_LOSS when compressed data is damaged or cut.
  Result<std::string_view> peek(size_t size) {
    if (end_ - begin_ < size) [[unlikely]]
      MR_TRY(fill(size));
    return window();
  }
  // The bytes at hand, without reading.
  std::string_view window() const { return {buffer_.get() + begin_, end_ - begin_}; }
  // Takes `size` bytes of the window (no more than it has: checked).
  void take(size_t size) {
    MR_CHECK(size <= end_ - begin_);
    begin_ += size;
  }

  // How many bytes lie before the next one, counted without compression.
  uint64_t position() const { return window_end_ - (end_ - begin_); }
  // Goes there. Compressed data is read from its beginning again to go back, and OUT_OF_RANGE when
  // it ends before; other files find their end with the next peek().
  Status seek(uint64_t position);

 private:
  InputStream(Ref<ReadableFile> file, const InputStreamOptions& options);

  Status fill(size_t size);
  Status make_room(size_t size);
  // Reads into the free end of the buffer; 0 at the end of the input.
  Result<size_t> read_more();
  Result<size_t> inflate_more();

  const Ref<ReadableFile> file_;
  const size_t chunk_bytes_;
  uint64_t file_offset_ = 0;
  std::unique_ptr<Inflater> inflater_;  // null: not compressed
  std::unique_ptr<char[]> packed_;      // compressed bytes
  std::string_view packed_window_;

  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  size_t begin_ = 0, end_ = 0;
  uint64_t window_end_ = 0;  // the position of end_
};

// The lines of a text. Ends of lines are left out, and with them every '\r', as in TensorFlow; the
// last line need not have one.
class LineReader {
 public:
  // `input` is borrowed.
  explicit LineReader(InputStream& input) : input_(input) {}
  // The next line; OUT_OF_RANGE after the last, RESOURCE_EXHAUSTED for one of more than 1 GiB.
  // Valid until the next call of this or of the stream.
  Result<std::string_view> next();

 private:
  std::string_view without_returns(std::string_view line);

  InputStream& input_;
  std::string scratch_;
};

}  // namespace millrace
