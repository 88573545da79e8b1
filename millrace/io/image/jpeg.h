#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/base/status.h"
#include "millrace/tensor/allocator.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct JpegDecodeOptions {
  int channels = 0;  // 1, 3, or 0: as many as the image has
  int ratio = 1;     // the image made smaller by 1, 2, 4 or 8
  bool fancy_upscaling = true;
  // Reads what there is of an image that ends too soon; what is missing is gray.
  bool try_recover_truncated = false;
  // The part of the rows that must have been read before data that end or break are an image all
  // the same; what is missing is black.
  float acceptable_fraction = 1;
  bool accurate_dct = false;  // slower
  // Only this window, which must lie within the image (after `ratio`).
  bool crop = false;
  int64_t crop_y = 0, crop_x = 0, crop_height = 0, crop_width = 0;
};

// The pixels as [height, width, channels], uint8. Images of four inks come as red, green and blue.
Result<Tensor> decode_jpeg(std::string_view bytes, const JpegDecodeOptions& options,
                           Allocator& allocator = cpu_allocator());

struct JpegShape {
  int64_t height = 0, width = 0, channels = 0;
};
// What the header says.
Result<JpegShape> read_jpeg_shape(std::string_view bytes);

struct JpegEncodeOptions {
  int quality = 95;  // 0 to 100
  bool progressive = false;
  bool optimize_size = false;
  bool chroma_downsampling = true;
  bool density_in_inches = true;  // else in centimetres
  int x_density = 300, y_density = 300;
  std::string xmp_metadata = {};
};

// `image` is uint8 of [height, width, channels] with 1 or 3 channels; INVALID_ARGUMENT otherwise.
Result<std::string> encode_jpeg(const Tensor& image, const JpegEncodeOptions& options);

}  // namespace millrace
