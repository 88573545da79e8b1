#pragma once

#include <string>

#include "millrace/io/image/image.h"
#include "millrace/io/image/jpeg.h"
#include "millrace/io/image/png.h"

namespace millrace {

// Any of the formats, with every option that changes which code reads it taken from `choice`.
inline Status decode_any(std::string_view bytes, unsigned choice) {
  const int channels = static_cast<int>(choice % 5);
  switch (image_format(bytes)) {
    case ImageFormat::kJpeg: {
      JpegDecodeOptions options;
      options.channels = channels % 2 == 1 ? channels : 0;
      options.ratio = 1 << (choice / 8 % 4);
      options.try_recover_truncated = choice / 32 % 2 == 1;
      options.acceptable_fraction = choice / 64 % 2 == 1 ? 0.5F : 1;
      options.accurate_dct = choice / 128 % 2 == 1;
      options.crop = choice / 16 % 4 == 1;
      options.crop_y = 1;
      options.crop_x = choice % 3;
      options.crop_height = options.crop_width = 2;
      (void)read_jpeg_shape(bytes).ok();
      return decode_jpeg(bytes, options).status();
    }
    case ImageFormat::kPng:
      return decode_png(bytes, channels, choice / 8 % 2 == 1 ? DType::kUInt16 : DType::kUInt8)
          .status();
    case ImageFormat::kGif:
      return decode_gif(bytes, choice % 2 == 1).status();
    case ImageFormat::kBmp:
      return decode_bmp(bytes, channels % 2 == 1 ? channels : 0).status();
    case ImageFormat::kUnknown:
      break;
  }
  return invalid_argument("not an image");
}

}  // namespace millrace
