#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

// What reader and writer of records share: length and its checksum before, checksum after.

namespace millrace {

inline constexpr size_t kRecordHeaderBytes = 12;
inline constexpr size_t kRecordFooterBytes = 4;

static_assert(std::endian::native == std::endian::little, "files are little-endian");

template <class T>
T load_little_endian(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <class T>
void store_little_endian(T value, char* bytes) {
  std::memcpy(bytes, &value, sizeof value);
}

}  // namespace millrace
