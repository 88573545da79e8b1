#include "millrace/io/image/png.h"

#ifdef MILLRACE_HAS_PNG

#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstdio>

namespace millrace {
namespace {

// As the decoder's: libpng leaves failing calls by longjmp, over nothing that must be destroyed.
class Encoder {
 public:
  ~Encoder() {
    if (png_ != nullptr) png_destroy_write_struct(&png_, info_ == nullptr ? nullptr : &info_);
  }

  bool encode(const uint8_t* pixels, png_uint_32 height, png_uint_32 width, int channels, int bits,
              int compression) {
    static constexpr int kColours[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                       PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    png_ =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, this, fail, [](png_structp, const char*) {});
    if (png_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    png_set_write_fn(png_, this, write, [](png_structp) {});
    png_set_compression_level(png_, compression);
    png_set_IHDR(png_, info_, width, height, bits, kColours[channels - 1], PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    if (bits == 16 && std::endian::native == std::endian::little) png_set_swap(png_);
    const size_t stride = static_cast<size_t>(width) * static_cast<size_t>(channels * bits / 8);
    for (png_uint_32 y = 0; y < height; ++y) png_write_row(png_, pixels + y * stride);
    png_write_end(png_, nullptr);
    return true;
  }

  Status error() const { return invalid_argument("PNG encoding failed: ", message_); }
  std::string take() { return std::move(bytes_); }

 private:
  static void fail(png_structp png, const char* message) {
    Encoder& self = *static_cast<Encoder*>(png_get_error_ptr(png));
    std::snprintf(self.message_, sizeof(self.message_), "%s", message);
    png_longjmp(png, 1);
  }
  static void write(png_structp png, png_bytep from, png_size_t size) {
    static_cast<Encoder*>(png_get_io_ptr(png))
        ->bytes_.append(reinterpret_cast<const char*>(from), size);
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::string bytes_;
  char message_[128] = "libpng has no memory";
};

}  // namespace

Result<std::string> encode_png(const Tensor& image, int compression) {
  constexpr int64_t kMaxSide = PNG_USER_WIDTH_MAX;
  const bool wide = image.dtype() == DType::kUInt16;
  if ((image.dtype() != DType::kUInt8 && !wide) || image.rank() != 3 || image.dim(2) < 1 ||
      image.dim(2) > 4) {
    return invalid_argument(
        "an image for PNG must be uint8 or uint16 of [height, width, 1 to 4 channels], got ",
        image.dtype(), " ", image.shape());
  }
  if (image.dim(0) < 1 || image.dim(1) < 1 || image.dim(0) > kMaxSide || image.dim(1) > kMaxSide) {
    return invalid_argument("an image for PNG must have 1 to ", kMaxSide, " rows and columns, got ",
                            image.shape());
  }
  if (compression < -1 || compression > 9) {
    return invalid_argument("compression should be in [-1,9], got ", compression);
  }
  Encoder encoder;
  if (!encoder.encode(static_cast<const uint8_t*>(image.raw()),
                      static_cast<png_uint_32>(image.dim(0)),
                      static_cast<png_uint_32>(image.dim(1)), static_cast<int>(image.dim(2)),
                      wide ? 16 : 8, compression)) {
    return encoder.error();
  }
  return encoder.take();
}

}  // namespace millrace

#else

namespace millrace {

Result<std::string> encode_png(const Tensor&, int) {
  return unimplemented("this build of Millrace has no libpng to encode PNG images with");
}

}  // namespace millrace

#endif
