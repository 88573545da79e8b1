#pragma once

#include <cstdint>
#include <string_view>

// Protocol buffers' wire format, read in place: for messages that arrive by the million. Everything
// else uses the generated classes.

namespace millrace {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint32_t wire_tag(uint32_t field, WireType type) {
  return field << 3 | static_cast<uint32_t>(type);
}

// The fields of a message, one after another. Functions return false for bytes that are no message;
// the reader is of no use then.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool done() const { return at_ == end_; }
  std::string_view rest() const { return {at_, static_cast<size_t>(end_ - at_)}; }

  bool varint(uint64_t& value) {
    if (at_ != end_ && static_cast<signed char>(*at_) >= 0) [[likely]] {
      value = static_cast<unsigned char>(*at_++);
      return true;
    }
    if (end_ - at_ >= 2 && static_cast<signed char>(at_[1]) >= 0) [[likely]] {
      value = (static_cast<unsigned char>(at_[0]) & 0x7FU) |
              static_cast<uint64_t>(static_cast<unsigned char>(at_[1])) << 7;
      at_ += 2;
      return true;
    }
    return long_varint(value);
  }
  bool tag(uint32_t& tag) {
    uint64_t value;
    if (!varint(value) || value > UINT32_MAX || value < 8) return false;
    tag = static_cast<uint32_t>(value);
    return true;
  }
  bool bytes(std::string_view& value) {
    uint64_t size;
    if (!varint(size) || size > static_cast<uint64_t>(end_ - at_)) return false;
    value = {at_, static_cast<size_t>(size)};
    at_ += size;
    return true;
  }
  bool fixed32(std::string_view& value) { return take(4, value); }
  // Passes over the value of a field that nobody asks for; groups are no part of today's format.
  bool skip(uint32_t tag) {
    std::string_view ignored;
    uint64_t number;
    switch (static_cast<WireType>(tag & 7)) {
      case WireType::kVarint:
        return varint(number);
      case WireType::kFixed64:
        return take(8, ignored);
      case WireType::kBytes:
        return bytes(ignored);
      case WireType::kFixed32:
        return take(4, ignored);
    }
    return false;
  }

 private:
  bool take(size_t size, std::string_view& value) {
    if (static_cast<size_t>(end_ - at_) < size) return false;
    value = {at_, size};
    at_ += size;
    return true;
  }
  bool long_varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 70 && at_ != end_; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at_++);
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  const char* at_;
  const char* end_;
};

}  // namespace millrace
