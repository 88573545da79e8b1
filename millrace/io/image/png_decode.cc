#include "millrace/io/image/image.h"
#include "millrace/io/image/png.h"

#ifdef MILLRACE_HAS_PNG

#include <png.h>

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>

namespace millrace {
namespace {

constexpr png_uint_32 kMaxSide = 1 << 27;
constexpr png_alloc_size_t kMaxChunk = 1 << 24;  // of what is not pixels
// A byte of deflated data stands for at most 1032.
constexpr uint64_t kMaxInflation = 1032;

struct Layout {
  png_uint_32 height = 0, width = 0;
  int channels = 0;
  bool widen = false;  // the rows have a byte for each element, the image has two
};

// libpng's state for one image. Failing calls leave by longjmp: each member function that calls it
// sets the place to come back to and has nothing to destroy between there and the call.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes), left_(bytes) {}
  ~Decoder() {
    if (png_ != nullptr)
      png_destroy_read_struct(&png_, info_ == nullptr ? nullptr : &info_, nullptr);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  Status error() const {
    return invalid_argument("Invalid PNG data, size ", bytes_.size(), ": ", message_);
  }

  bool read_header() {
    png_ =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, [](png_structp, const char*) {});
    if (png_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    png_set_user_limits(png_, kMaxSide, kMaxSide);
    png_set_chunk_malloc_max(png_, kMaxChunk);
    png_set_read_fn(png_, this, read);
    png_read_info(png_, info_);
    return true;
  }

  // Sets up the conversion; `channels` as the caller wants them, 0: as they are.
  bool convert(int channels, bool wide, Layout& layout) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    return set_up(channels, wide, layout);
  }

  // The bytes of the image as the file has it, deflated.
  uint64_t raw_bytes() const {
    const uint64_t bits = uint64_t{png_get_image_width(png_, info_)} *
                          png_get_channels(png_, info_) * png_get_bit_depth(png_, info_);
    return ((bits + 7) / 8 + 1) * png_get_image_height(png_, info_);
  }

  // `stride` bytes lie between the beginnings of rows.
  bool read_rows(uint8_t* to, size_t stride, png_uint_32 height) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    for (int pass = 0; pass < passes_; ++pass) {
      for (png_uint_32 y = 0; y < height; ++y) png_read_row(png_, to + y * stride, nullptr);
    }
    // The end checks the last checksum.
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  bool set_up(int channels, bool wide, Layout& layout) {
    const int colours = png_get_color_type(png_, info_), bits = png_get_bit_depth(png_, info_);
    const bool palette = colours == PNG_COLOR_TYPE_PALETTE;
    const bool has_alpha = (colours & PNG_COLOR_MASK_ALPHA) != 0;
    const bool has_transparent = png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    const bool is_gray = (colours & PNG_COLOR_MASK_COLOR) == 0;
    if (channels == 0) {
      channels = palette ? (has_transparent ? 4 : 3) : png_get_channels(png_, info_);
    }
    const bool alpha = channels % 2 == 0;
    if (!alpha && (has_alpha || has_transparent)) png_set_strip_alpha(png_);
    if (alpha && !has_alpha && has_transparent) png_set_tRNS_to_alpha(png_);
    if (alpha && !has_alpha && !has_transparent) {
      png_set_add_alpha(png_, (1U << std::max(bits, 8)) - 1, PNG_FILLER_AFTER);
    }
    if (bits > 8 && !wide) png_set_strip_16(png_);
    layout.widen = bits <= 8 && wide;
    png_set_packing(png_);
    passes_ = png_set_interlace_handling(png_);
    if (bits > 8 && std::endian::native == std::endian::little) png_set_swap(png_);
    if (palette) png_set_palette_to_rgb(png_);
    if (is_gray && bits < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (channels < 3 && !is_gray) png_set_rgb_to_gray(png_, 1, 0.299, 0.587);
    if (channels >= 3 && is_gray) png_set_gray_to_rgb(png_);
    png_read_update_info(png_, info_);
    layout.height = png_get_image_height(png_, info_);
    layout.width = png_get_image_width(png_, info_);
    layout.channels = channels;
    const size_t size = wide && !layout.widen ? 2 : 1;
    if (png_get_rowbytes(png_, info_) != size * layout.width * static_cast<size_t>(channels)) {
      std::snprintf(message_, sizeof(message_), "rows of %zu bytes", png_get_rowbytes(png_, info_));
      return false;
    }
    return true;
  }

  static void fail(png_structp png, const char* message) {
    Decoder& self = *static_cast<Decoder*>(png_get_error_ptr(png));
    std::snprintf(self.message_, sizeof(self.message_), "%s", message);
    png_longjmp(png, 1);
  }
  static void read(png_structp png, png_bytep to, png_size_t size) {
    std::string_view& left = static_cast<Decoder*>(png_get_io_ptr(png))->left_;
    if (size > left.size()) png_error(png, "the data end too soon");
    std::memcpy(to, left.data(), size);
    left.remove_prefix(size);
  }

  const std::string_view bytes_;
  std::string_view left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  char message_[128] = "libpng has no memory";
};

}  // namespace

Result<Tensor> decode_png(std::string_view bytes, int channels, DType dtype, Allocator& allocator) {
  if (channels < 0 || channels > 4) {
    return invalid_argument("channels must be 0 to 4 for PNG, got ", channels);
  }
  if (dtype != DType::kUInt8 && dtype != DType::kUInt16) {
    return invalid_argument("PNG images are uint8 or uint16, not ", dtype);
  }
  Decoder decoder(bytes);
  if (!decoder.read_header()) return decoder.error();
  if (decoder.raw_bytes() / kMaxInflation > bytes.size()) {
    return invalid_argument("Invalid PNG data, size ", bytes.size(), ": too short for ",
                            decoder.raw_bytes(), " bytes of pixels");
  }
  Layout layout;
  if (!decoder.convert(channels, dtype == DType::kUInt16, layout)) return decoder.error();
  MR_TRY(check_image_size("PNG", 1, layout.height, layout.width, layout.channels));
  const Shape shape = {layout.height, layout.width, layout.channels};
  MR_TRY_ASSIGN(Tensor image, Tensor::allocate(dtype, shape, allocator));
  // Rows that are to be widened are read into the second half of their memory.
  const size_t row = static_cast<size_t>(layout.width) * static_cast<size_t>(layout.channels);
  const size_t stride = row * dtype_size(dtype);
  auto* const base = static_cast<uint8_t*>(image.mutable_raw());
  if (!decoder.read_rows(base + (layout.widen ? row : 0), stride, layout.height)) {
    return decoder.error();
  }
  if (layout.widen) {
    for (png_uint_32 y = 0; y < layout.height; ++y) {
      const uint8_t* const from = base + y * stride + row;
      uint16_t* const to = image.mutable_data<uint16_t>().data() + y * row;
      for (size_t i = 0; i < row; ++i) to[i] = static_cast<uint16_t>(from[i] * 257);
    }
  }
  return image;
}

}  // namespace millrace

#else

namespace millrace {

Result<Tensor> decode_png(std::string_view, int, DType, Allocator&) {
  return unimplemented("this build of Millrace has no libpng to decode PNG images with");
}

}  // namespace millrace

#endif
