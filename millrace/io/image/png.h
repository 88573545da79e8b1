#pragma once

#include <string>
#include <string_view>

#include "millrace/base/status.h"
#include "millrace/tensor/allocator.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// The pixels as [height, width, channels] of `dtype`, kUInt8 or kUInt16. `channels` is 1 (gray), 2
// (with alpha), 3 (colours), 4 (with alpha), or 0: as many as the image has. 16 bits become 8 by
// dropping the lower ones, 8 bits x become 16 as 257 * x.
Result<Tensor> decode_png(std::string_view bytes, int channels, DType dtype,
                          Allocator& allocator = cpu_allocator());

// `image` is uint8 or uint16 of [height, width, channels] with 1 to 4 channels, not empty;
// INVALID_ARGUMENT otherwise. `compression` is zlib's level, 0 to 9, or -1 for its default.
Result<std::string> encode_png(const Tensor& image, int compression = -1);

}  // namespace millrace
