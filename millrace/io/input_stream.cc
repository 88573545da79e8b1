#include "millrace/io/input_stream.h"

#include <algorithm>
#include <cstring>

namespace millrace {

Result<std::unique_ptr<InputStream>> InputStream::make(Ref<ReadableFile> file,
                                                       const InputStreamOptions& options) {
  std::unique_ptr<InputStream> stream(new InputStream(std::move(file), options));
  if (options.compression != Compression::kNone) {
    MR_TRY_ASSIGN(stream->inflater_, Inflater::make(options.compression));
  }
  return stream;
}

InputStream::InputStream(Ref<ReadableFile> file, const InputStreamOptions& options)
    : file_(std::move(file)), chunk_bytes_(std::max<size_t>(options.chunk_bytes, 1)) {}

InputStream::~InputStream() = default;

Status InputStream::fill(size_t size) {
  while (end_ - begin_ < size) {
    MR_TRY(make_room(size));
    MR_TRY_ASSIGN(const size_t got, read_more());
    end_ += got;
    window_end_ += got;
    if (got == 0) break;
  }
  return ok_status();
}

// At least a byte of free space at the end of the buffer. It doubles, so it is never more than a
// chunk and twice the bytes that the window has.
Status InputStream::make_room(size_t size) {
  const size_t have = end_ - begin_;
  if (begin_ > 0 && (have == 0 || capacity_ - begin_ < size)) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, have);
    begin_ = 0;
    end_ = have;
  }
  if (end_ < capacity_) return ok_status();
  const size_t capacity = std::max(chunk_bytes_, 2 * have);
  std::unique_ptr<char[]> larger(new (std::nothrow) char[capacity]);
  if (!larger) return resource_exhausted("no memory to read ", capacity, " bytes of a file");
  if (have > 0) std::memcpy(larger.get(), buffer_.get() + begin_, have);
  buffer_ = std::move(larger);
  capacity_ = capacity;
  begin_ = 0;
  end_ = have;
  return ok_status();
}

Result<size_t> InputStream::read_more() {
  if (inflater_) return inflate_more();
  MR_TRY_ASSIGN(const size_t got,
                file_->read_at(file_offset_, capacity_ - end_, buffer_.get() + end_));
  file_offset_ += got;
  return got;
}

Result<size_t> InputStream::inflate_more() {
  if (!packed_) packed_.reset(new char[chunk_bytes_]);
  for (;;) {
    MR_TRY_ASSIGN(const size_t got,
                  inflater_->inflate(packed_window_, capacity_ - end_, buffer_.get() + end_));
    if (got > 0) return got;
    MR_TRY_ASSIGN(const size_t packed, file_->read_at(file_offset_, chunk_bytes_, packed_.get()));
    file_offset_ += packed;
    packed_window_ = {packed_.get(), packed};
    if (packed == 0) {
      if (!inflater_->complete()) return data_loss("compressed data ends too early");
      return size_t{0};
    }
  }
}

Status InputStream::seek(uint64_t position) {
  const uint64_t window_begin = window_end_ - end_;
  if (position >= window_begin && position <= window_end_) {
    begin_ = static_cast<size_t>(position - window_begin);
    return ok_status();
  }
  if (!inflater_ || position < window_begin) {
    begin_ = end_ = 0;
    window_end_ = file_offset_ = inflater_ ? 0 : position;
    packed_window_ = {};
    if (inflater_) inflater_->reset();
  }
  while (window_end_ < position) {
    begin_ = end_;
    MR_TRY(fill(1));
    if (begin_ == end_) {
      return out_of_range("the file has ", window_end_, " bytes and no byte ", position);
    }
  }
  begin_ = end_ - static_cast<size_t>(window_end_ - position);
  return ok_status();
}

Result<std::string_view> LineReader::next() {
  constexpr size_t kLongest = size_t{1} << 30;
  size_t searched = 0;
  for (;;) {
    const std::string_view window = input_.window();
    const size_t end = window.find('\n', searched);
    if (end != std::string_view::npos) {
      input_.take(end + 1);
      return without_returns(window.substr(0, end));
    }
    if (window.size() > kLongest) {
      return resource_exhausted("a line has more than ", kLongest, " bytes");
    }
    searched = window.size();
    MR_TRY_ASSIGN(const std::string_view more, input_.peek(searched + 1));
    if (more.size() == searched) {
      const std::string_view line = without_returns(more);
      if (line.empty()) return out_of_range("the end of the text");
      input_.take(searched);
      return line;
    }
  }
}

std::string_view LineReader::without_returns(std::string_view line) {
  if (line.find('\r') == std::string_view::npos) return line;
  scratch_.assign(line);
  std::erase(scratch_, '\r');
  return scratch_;
}

}  // namespace millrace
