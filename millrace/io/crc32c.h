#pragma once

#include <cstdint>
#include <string_view>

// CRC32C (Castagnoli), which guards checkpoints, records and event files.

namespace millrace {

// The checksum of what `crc` is the checksum of, followed by `data`. Start with 0. Several bytes a
// cycle where the processor has an instruction for it.
uint32_t crc32c_extend(uint32_t crc, std::string_view data);

inline uint32_t crc32c(std::string_view data) { return crc32c_extend(0, data); }

// Files store checksums masked: a checksum of bytes that hold checksums would be weak otherwise.
inline uint32_t crc32c_mask(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }
inline uint32_t crc32c_unmask(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8U;
  return (rotated >> 17) | (rotated << 15);
}

// The same without the processor's instruction, for tests.
uint32_t crc32c_extend_portable(uint32_t crc, std::string_view data);

}  // namespace millrace
