#include "millrace/io/coding.h"

namespace millrace {

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

bool get_varint(std::string_view& in, uint64_t& out) {
  uint64_t value = 0;
  for (size_t i = 0; i < in.size() && i < 10; ++i) {
    const uint64_t byte = static_cast<uint8_t>(in[i]);
    if (i == 9 && byte > 1) return false;
    value |= (byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      in.remove_prefix(i + 1);
      out = value;
      return true;
    }
  }
  return false;
}

bool get_varint32(std::string_view& in, uint32_t& out) {
  std::string_view rest = in;
  uint64_t value = 0;
  if (!get_varint(rest, value) || value > UINT32_MAX) return false;
  in = rest;
  out = static_cast<uint32_t>(value);
  return true;
}

}  // namespace millrace
