#pragma once

#include <string>
#include <string_view>

#include "millrace/base/status.h"

namespace millrace {

// What the bytes of one Snappy block (the raw format, without frames) stand for; DATA_LOSS for
// bytes that are none. What they claim to need is checked before it is allocated.
Result<std::string> snappy_decode(std::string_view bytes);

}  // namespace millrace
