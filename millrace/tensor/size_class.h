#pragma once

#include <bit>
#include <cstddef>

// How the CPU allocator rounds sizes: four steps per power of two, counted without the 64 bytes
// that a tensor's buffer object takes in front of its elements, so that a tensor of 2^k bytes fits
// a block without waste. All sizes are multiples of 64.

namespace millrace {

inline constexpr size_t kBlockHeader = 64;
inline constexpr int kNumSizeClasses = 8 + (60 - 6) * 4 + 1;

// 1 <= bytes <= 2^62.
constexpr int size_class(size_t bytes) {
  if (bytes <= kBlockHeader) return 0;
  const size_t payload = bytes - kBlockHeader;
  if (payload <= 512) return static_cast<int>((payload + 63) / 64);
  const int shift = std::bit_width(payload - 1) - 3;
  const auto quarter = static_cast<int>((payload - 1) >> shift);  // 4 to 7
  return 8 + (shift - 7) * 4 + (quarter - 4) + 1;
}

// The size of the blocks of a class.
constexpr size_t class_bytes(int index) {
  if (index <= 8) return kBlockHeader + static_cast<size_t>(index) * 64;
  const int step = index - 9;
  return kBlockHeader + (static_cast<size_t>(step % 4 + 5) << (step / 4 + 7));
}

}  // namespace millrace
