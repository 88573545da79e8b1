#pragma once

#include <cstdint>

// Sizes that more than one of the ways to multiply is cut by.

namespace millrace {

// So many products of a sum at a time: a panel of the right matrix (kDepth x nr) then stays in the
// second-level cache, with a block of rows of the left one.
inline constexpr int64_t kDepth = 512;
// Enough pieces that threads finish together.
inline constexpr int64_t kTasks = 16;
// Lines a multiple of 2048 bytes apart share few places of the first-level cache.
template <class T>
inline constexpr int64_t kFarElements = 2048 / sizeof(T);

}  // namespace millrace
