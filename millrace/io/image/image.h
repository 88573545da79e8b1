#pragma once

#include <cstdint>
#include <string_view>

#include "millrace/base/status.h"
#include "millrace/tensor/allocator.h"
#include "millrace/tensor/tensor.h"

// Images as files hold them. Decoders take bytes from strangers: sizes are checked against what the
// bytes can hold before memory is asked for, and damaged data is INVALID_ARGUMENT. All functions
// are thread-safe. A build without libjpeg or libpng answers UNIMPLEMENTED where it needs them.

namespace millrace {

enum class ImageFormat : uint8_t { kUnknown, kJpeg, kPng, kGif, kBmp };

// By the first bytes.
ImageFormat image_format(std::string_view bytes);
std::string_view image_format_name(ImageFormat format);  // "JPEG"

// No decoder makes an image (all frames together) of more elements.
inline constexpr int64_t kMaxImageElements = (int64_t{1} << 29) - 1;

// INVALID_ARGUMENT unless frames of this size are not empty and have at most kMaxImageElements.
Status check_image_size(std::string_view format, int64_t frames, int64_t height, int64_t width,
                        int64_t channels);

// The pixels as [height, width, channels], rows from top to bottom, uint8. `channels` is 0 (as many
// as the file has), 3 or 4, and for images of one byte a pixel 1; those give the bytes, without
// looking at a palette.
Result<Tensor> decode_bmp(std::string_view bytes, int channels,
                          Allocator& allocator = cpu_allocator());

// The frames as [frames, height, width, 3], uint8, where height and width are those of the largest
// frame. Each frame is drawn over the one before (over black, the first), where it is not
// transparent; how a frame wants to be disposed of is not looked at, as in TensorFlow.
// `first_only`: one frame, without looking at what follows it.
Result<Tensor> decode_gif(std::string_view bytes, bool first_only = false,
                          Allocator& allocator = cpu_allocator());

}  // namespace millrace
