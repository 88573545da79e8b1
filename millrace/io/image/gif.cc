// GIF: a screen, and frames on it, each an array of colour numbers packed by LZW.

#include <algorithm>
#include <array>
#include <vector>

#include "millrace/io/image/image.h"

namespace millrace {
namespace {

constexpr int kNoColour = -1;
constexpr int kMaxCodes = 4096;
// A code of at most 12 bits stands for at most 4096 pixels, and codes this long come only once
// there are that many: no byte stands for more.
constexpr int64_t kMaxPixelsPerByte = 4096;

// Reads numbers and blocks; everything is checked against the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  size_t left() const { return bytes_.size() - at_; }
  Result<uint8_t> byte() {
    MR_TRY_ASSIGN(const std::string_view one, take(1));
    return static_cast<uint8_t>(one[0]);
  }
  Result<int> number() {
    MR_TRY_ASSIGN(const std::string_view two, take(2));
    return static_cast<unsigned char>(two[0]) | static_cast<unsigned char>(two[1]) << 8;
  }
  Result<std::string_view> take(size_t size) {
    if (size > left()) {
      return invalid_argument("GIF data end at byte ", bytes_.size(), ", ", size,
                              " more are needed at byte ", at_);
    }
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  // A block's next part; empty: the block is over.
  Result<std::string_view> part() {
    MR_TRY_ASSIGN(const uint8_t size, byte());
    return take(size);
  }
  Status skip_block() {
    while (true) {
      MR_TRY_ASSIGN(const std::string_view more, part());
      if (more.empty()) return ok_status();
    }
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

// Three bytes a colour.
Result<std::string_view> read_colours(Reader& reader, uint8_t flags) {
  if ((flags & 0x80) == 0) return std::string_view();
  return reader.take(3 * (size_t{2} << (flags & 7)));
}

struct Frame {
  int left = 0, top = 0, width = 0, height = 0;
  bool interlaced = false;
  int transparent = kNoColour;
  std::string_view colours;
  std::vector<uint8_t> pixels;  // numbers of colours
};

// Unpacks the pixels of one frame. Codes above `end_` stand for the code before, and one pixel
// more.
class Lzw {
 public:
  explicit Lzw(int bits)
      : bits_(bits), clear_(1 << bits), end_(clear_ + 1), width_(bits + 1), next_(end_ + 1) {
    for (int i = 0; i < clear_; ++i) last_[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
  }

  // Appends the pixels that follow to `out`, which holds at most `limit`. Gives false at the end.
  Result<bool> unpack(std::string_view bytes, size_t limit, std::vector<uint8_t>& out) {
    for (const char c : bytes) {
      buffer_ |= static_cast<uint32_t>(static_cast<unsigned char>(c)) << held_;
      held_ += 8;
      while (held_ >= width_) {
        const int code = static_cast<int>(buffer_ & ((1U << width_) - 1));
        buffer_ >>= width_;
        held_ -= width_;
        if (code == end_) return false;
        MR_TRY(take(code, limit, out));
        if (out.size() == limit) return false;
      }
    }
    return true;
  }

 private:
  Status take(int code, size_t limit, std::vector<uint8_t>& out) {
    if (code == clear_) {
      width_ = bits_ + 1;
      next_ = end_ + 1;
      previous_ = kNone;
      return ok_status();
    }
    if (code > next_ || (code == next_ && previous_ == kNone)) {
      return invalid_argument("GIF data are damaged: code ", code, " where there are ", next_);
    }
    // The code that is being made: the one before, and its own first pixel again.
    const bool unfinished = code == next_;
    size_t size = 0;
    int at = unfinished ? previous_ : code;
    for (; at > end_; at = prefix_[static_cast<size_t>(at)]) {
      stack_[size++] = last_[static_cast<size_t>(at)];
    }
    const uint8_t first = last_[static_cast<size_t>(at)];
    stack_[size++] = first;
    for (; size > 0 && out.size() < limit; --size) out.push_back(stack_[size - 1]);
    if (unfinished && out.size() < limit) out.push_back(first);
    if (previous_ != kNone && next_ < kMaxCodes) {
      prefix_[static_cast<size_t>(next_)] = static_cast<uint16_t>(previous_);
      last_[static_cast<size_t>(next_)] = first;
      ++next_;
      if (next_ == 1 << width_ && width_ < 12) ++width_;
    }
    previous_ = code;
    return ok_status();
  }

  static constexpr int kNone = -1;
  const int bits_, clear_, end_;
  int width_, next_;
  int previous_ = kNone;
  uint32_t buffer_ = 0;
  int held_ = 0;
  std::array<uint16_t, kMaxCodes> prefix_{};
  std::array<uint8_t, kMaxCodes> last_{};
  std::array<uint8_t, kMaxCodes + 1> stack_{};
};

Status read_pixels(Reader& reader, Frame& frame) {
  MR_TRY_ASSIGN(const uint8_t bits, reader.byte());
  if (bits < 2 || bits > 8) {
    return invalid_argument("GIF data are damaged: colours of ", bits, " bits");
  }
  const int64_t size = int64_t{frame.width} * frame.height;
  if (size / kMaxPixelsPerByte > static_cast<int64_t>(reader.left())) {
    return invalid_argument("GIF frame of ", frame.height, " x ", frame.width, " pixels in ",
                            reader.left(), " bytes of data");
  }
  frame.pixels.reserve(static_cast<size_t>(size));
  Lzw lzw(bits);
  for (bool more = true; more;) {
    MR_TRY_ASSIGN(const std::string_view bytes, reader.part());
    if (bytes.empty()) {
      more = false;
      break;
    }
    MR_TRY_ASSIGN(more, lzw.unpack(bytes, static_cast<size_t>(size), frame.pixels));
    if (!more) MR_TRY(reader.skip_block());
  }
  if (frame.pixels.size() != static_cast<size_t>(size)) {
    return invalid_argument("GIF frame of ", frame.height, " x ", frame.width, " pixels has only ",
                            frame.pixels.size());
  }
  return ok_status();
}

// Where the rows of an interlaced frame are: every eighth, those between, and so on.
std::vector<int> row_order(const Frame& frame) {
  std::vector<int> rows;
  rows.reserve(static_cast<size_t>(frame.height));
  if (!frame.interlaced) {
    for (int y = 0; y < frame.height; ++y) rows.push_back(y);
    return rows;
  }
  constexpr int kFirst[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; ++pass) {
    for (int y = kFirst[pass]; y < frame.height; y += kStep[pass]) rows.push_back(y);
  }
  return rows;
}

// Draws the frame on `to`, which holds what was there before.
Status draw(const Frame& frame, int64_t height, int64_t width, uint8_t* to) {
  const std::vector<int> rows = row_order(frame);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t y = int64_t{frame.top} + rows[i];
    if (y >= height) continue;
    for (int x = 0; x < frame.width; ++x) {
      if (int64_t{frame.left} + x >= width) break;
      const uint8_t colour =
          frame.pixels[i * static_cast<size_t>(frame.width) + static_cast<size_t>(x)];
      if (colour == frame.transparent) continue;
      if (size_t{colour} * 3 >= frame.colours.size()) {
        return invalid_argument("found color index ", colour, " outside of color map range ",
                                frame.colours.size() / 3);
      }
      std::copy_n(frame.colours.data() + size_t{colour} * 3, 3,
                  to + (y * width + frame.left + x) * 3);
    }
  }
  return ok_status();
}

Result<Frame> read_frame(Reader& reader, std::string_view colours, int transparent) {
  Frame frame;
  frame.transparent = transparent;
  MR_TRY_ASSIGN(frame.left, reader.number());
  MR_TRY_ASSIGN(frame.top, reader.number());
  MR_TRY_ASSIGN(frame.width, reader.number());
  MR_TRY_ASSIGN(frame.height, reader.number());
  MR_TRY(check_image_size("GIF", 1, frame.height, frame.width, 3));
  MR_TRY_ASSIGN(const uint8_t flags, reader.byte());
  frame.interlaced = (flags & 0x40) != 0;
  MR_TRY_ASSIGN(frame.colours, read_colours(reader, flags));
  if (frame.colours.empty()) frame.colours = colours;
  if (frame.colours.empty()) return invalid_argument("GIF frame without a table of colours");
  MR_TRY(read_pixels(reader, frame));
  return frame;
}

// What the extension says of the next frame: the number of its transparent colour.
Status read_extension(Reader& reader, int& transparent) {
  MR_TRY_ASSIGN(const uint8_t label, reader.byte());
  if (label == 0xf9) {
    MR_TRY_ASSIGN(const std::string_view control, reader.part());
    if (control.empty()) return ok_status();
    if (control.size() >= 4) {
      transparent = (control[0] & 1) != 0 ? static_cast<unsigned char>(control[3]) : kNoColour;
    }
  }
  return reader.skip_block();
}

Result<std::vector<Frame>> read_frames(std::string_view bytes, bool first_only) {
  Reader reader(bytes);
  MR_TRY(reader.take(6).status());  // GIF87a or GIF89a
  MR_TRY(reader.take(4).status());  // the size of the screen
  MR_TRY_ASSIGN(const uint8_t flags, reader.byte());
  MR_TRY(reader.take(2).status());  // background and aspect ratio
  MR_TRY_ASSIGN(const std::string_view colours, read_colours(reader, flags));
  std::vector<Frame> frames;
  int64_t height = 0, width = 0;
  int transparent = kNoColour;
  while (true) {
    MR_TRY_ASSIGN(const uint8_t kind, reader.byte());
    if (kind == 0x3b) break;
    if (kind == 0x21) {
      MR_TRY(read_extension(reader, transparent));
    } else if (kind == 0x2c) {
      MR_TRY_ASSIGN(Frame frame, read_frame(reader, colours, transparent));
      transparent = kNoColour;
      height = std::max<int64_t>(height, frame.height);
      width = std::max<int64_t>(width, frame.width);
      frames.push_back(std::move(frame));
      MR_TRY(check_image_size("GIF", static_cast<int64_t>(frames.size()), height, width, 3));
      if (first_only) break;
    } else {
      return invalid_argument("GIF data are damaged: block of unknown kind ", kind);
    }
  }
  if (frames.empty()) return invalid_argument("GIF data without a frame");
  return frames;
}

}  // namespace

Result<Tensor> decode_gif(std::string_view bytes, bool first_only, Allocator& allocator) {
  if (image_format(bytes) != ImageFormat::kGif) {
    return invalid_argument("not a GIF image: it does not begin with 'GIF8'");
  }
  MR_TRY_ASSIGN(const std::vector<Frame> frames, read_frames(bytes, first_only));
  int64_t height = 0, width = 0;
  for (const Frame& frame : frames) {
    height = std::max<int64_t>(height, frame.height);
    width = std::max<int64_t>(width, frame.width);
  }
  const Shape shape = {static_cast<int64_t>(frames.size()), height, width, 3};
  MR_TRY_ASSIGN(Tensor images, Tensor::allocate(DType::kUInt8, shape, allocator));
  const int64_t size = height * width * 3;
  uint8_t* to = images.mutable_data<uint8_t>().data();
  for (size_t i = 0; i < frames.size(); ++i, to += size) {
    if (i == 0) {
      std::fill_n(to, size, uint8_t{0});
    } else {
      std::copy_n(to - size, size, to);
    }
    MR_TRY(draw(frames[i], height, width, to).with_prefix(str_cat("GIF frame ", i)));
  }
  return images;
}

}  // namespace millrace
