#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "millrace/base/status.h"

namespace millrace {

// One character taken from the front of a text.
struct DecodedCharacter {
  uint32_t code_point = 0;
  size_t bytes = 1;    // what it took
  bool valid = false;  // otherwise the bytes are no character
};

// Reads characters of an encoding: Unicode's own, US-ASCII and ISO-8859-1, and what the C library
// converts.
class TextDecoder {
 public:
  // By a name such as "UTF-8", "utf16be", "SHIFT-JIS"; INVALID_ARGUMENT for one that is not known.
  static Result<std::unique_ptr<TextDecoder>> make(std::string_view encoding);
  virtual ~TextDecoder() = default;
  // The first character of `text`, which is not empty. Of bytes that are none, the longest part
  // that could have begun one is taken. For one thread at a time.
  virtual DecodedCharacter next(std::string_view text) = 0;
};

enum class UnicodeEncoding { kUtf8, kUtf16Be, kUtf32Be };
// INVALID_ARGUMENT for other names than "UTF-8", "UTF-16-BE" and "UTF-32-BE".
Result<UnicodeEncoding> unicode_encoding(std::string_view name);
// Adds a code point, at most 0x10ffff, to `text`.
void append_character(uint32_t code_point, UnicodeEncoding encoding, std::string& text);

// Whether a number is a character of Unicode: in range, neither half of a pair nor one of those set
// apart for other uses.
bool is_unicode_character(int64_t number);

}  // namespace millrace
