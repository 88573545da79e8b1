// BMP: a header of 54 bytes or more, then rows from bottom to top, each filled up to a multiple of
// four bytes. A negative height says that rows go from top to bottom.

#include <algorithm>

#include "millrace/io/image/image.h"

namespace millrace {
namespace {

constexpr size_t kHeaderBytes = 32;  // up to and with the number of bits per pixel

uint32_t little_endian(std::string_view bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

// Files have blue, green, red and alpha in this order.
void copy_row(const unsigned char* from, int64_t width, int64_t channels, uint8_t* to) {
  if (channels == 1) {
    std::copy_n(from, width, to);
    return;
  }
  for (int64_t x = 0; x < width; ++x, from += channels, to += channels) {
    to[0] = from[2];
    to[1] = from[1];
    to[2] = from[0];
    if (channels == 4) to[3] = from[3];
  }
}

}  // namespace

Result<Tensor> decode_bmp(std::string_view bytes, int channels, Allocator& allocator) {
  if (image_format(bytes) != ImageFormat::kBmp) {
    return invalid_argument("not a BMP image: it does not begin with 'BM'");
  }
  if (bytes.size() < kHeaderBytes) {
    return invalid_argument("Incomplete bmp content, requires at least ", kHeaderBytes,
                            " bytes to find the header size, width, height, and bpp, got ",
                            bytes.size(), " bytes");
  }
  const uint64_t first = little_endian(bytes, 10, 4);
  const int64_t width = static_cast<int32_t>(little_endian(bytes, 18, 4));
  const int64_t signed_height = static_cast<int32_t>(little_endian(bytes, 22, 4));
  const int64_t height = signed_height < 0 ? -signed_height : signed_height;
  const int64_t bits = little_endian(bytes, 28, 2);
  if (bits != 8 && bits != 24 && bits != 32) {
    return invalid_argument("BMP images have 8, 24 or 32 bits a pixel, got ", bits);
  }
  const int64_t in_file = bits / 8;
  if (channels != 0 && channels != in_file) {
    return invalid_argument("channels attribute ", channels,
                            " does not match bits per pixel from file ", in_file);
  }
  MR_TRY(check_image_size("BMP", 1, height, width, in_file));
  const uint64_t stride = static_cast<uint64_t>((width * in_file + 3) / 4 * 4);
  // The filling of the last row may be missing.
  const uint64_t needed =
      stride * static_cast<uint64_t>(height - 1) + static_cast<uint64_t>(width * in_file);
  if (first > bytes.size() || needed > bytes.size() - first) {
    return invalid_argument("Incomplete bmp content, requires at least ", first + needed,
                            " bytes, got ", bytes.size(), " bytes");
  }
  MR_TRY_ASSIGN(Tensor image,
                Tensor::allocate(DType::kUInt8, Shape{height, width, in_file}, allocator));
  const auto* const from = reinterpret_cast<const unsigned char*>(bytes.data()) + first;
  uint8_t* const to = image.mutable_data<uint8_t>().data();
  for (int64_t y = 0; y < height; ++y) {
    const int64_t row = signed_height < 0 ? y : height - 1 - y;
    copy_row(from + static_cast<uint64_t>(row) * stride, width, in_file, to + y * width * in_file);
  }
  return image;
}

}  // namespace millrace
