#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

// Numbers in files: little-endian, and varints of seven bits a byte, lowest first. Readers take
// what they read off the front of `in`; they answer false, leaving `out` alone, where the bytes end
// too early or say a number that does not fit.

namespace millrace {

void put_varint(std::string& out, uint64_t value);
bool get_varint(std::string_view& in, uint64_t& out);
bool get_varint32(std::string_view& in, uint32_t& out);

// Machines that we build for are little-endian.
inline void put_fixed32(std::string& out, uint32_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
inline void put_fixed64(std::string& out, uint64_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
inline uint32_t load_fixed32(const char* from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline uint64_t load_fixed64(const char* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace millrace
