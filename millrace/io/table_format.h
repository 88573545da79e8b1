#pragma once

#include <cstddef>
#include <cstdint>

// Numbers of the table format that its writer and its reader share.

namespace millrace {

inline constexpr uint64_t kTableMagic = 0xDB4775248B80FB57;
inline constexpr size_t kFooterBytes = 48;
inline constexpr size_t kTrailerBytes = 5;     // after each block: how it is compressed, a checksum
inline constexpr size_t kBlockBytes = 262144;  // a block ends with the entry that fills it
inline constexpr int kRestartInterval = 16;

}  // namespace millrace
