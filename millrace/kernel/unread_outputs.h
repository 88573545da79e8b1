#pragma once

#include <string_view>

namespace millrace {

// On a node of a plan with several outputs, an int: bit i says that nobody reads output i. The
// kernel may set any tensor of the output's type then, an empty one, say, and compute less.
inline constexpr std::string_view kUnreadOutputsAttr = "_unread_outputs";

}  // namespace millrace
