#include "millrace/io/image/image.h"

namespace millrace {

ImageFormat image_format(std::string_view bytes) {
  if (bytes.starts_with("\xff\xd8\xff")) return ImageFormat::kJpeg;
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return ImageFormat::kPng;
  if (bytes.starts_with("GIF8")) return ImageFormat::kGif;
  if (bytes.starts_with("BM")) return ImageFormat::kBmp;
  return ImageFormat::kUnknown;
}

std::string_view image_format_name(ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return "JPEG";
    case ImageFormat::kPng:
      return "PNG";
    case ImageFormat::kGif:
      return "GIF";
    case ImageFormat::kBmp:
      return "BMP";
    case ImageFormat::kUnknown:
      break;
  }
  return "unknown";
}

Status check_image_size(std::string_view format, int64_t frames, int64_t height, int64_t width,
                        int64_t channels) {
  const bool empty = frames <= 0 || height <= 0 || width <= 0 || channels <= 0;
  int64_t elements = 0;
  if (empty || __builtin_mul_overflow(height, width, &elements) ||
      __builtin_mul_overflow(elements, channels, &elements) ||
      __builtin_mul_overflow(elements, frames, &elements) || elements > kMaxImageElements) {
    return invalid_argument(format, " image of ", frames, " frames of ", height, " x ", width,
                            " pixels with ", channels, " channels: sizes must be positive and at ",
                            "most ", kMaxImageElements, " elements together");
  }
  return ok_status();
}

}  // namespace millrace
