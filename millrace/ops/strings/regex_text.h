#pragma once

#include <string_view>
#include <vector>

namespace millrace {

// The characters of a text, and where each begins; a byte that begins none is one by itself.
struct RegexText {
  std::vector<char32_t> characters;
  std::vector<size_t> offsets;  // one more than characters

  explicit RegexText(std::string_view text) {
    characters.reserve(text.size());
    offsets.reserve(text.size() + 1);
    for (size_t i = 0; i < text.size();) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
      char32_t c = length == 1 ? byte : byte & (0xFFU >> (length + 1));
      bool whole = i + length <= text.size();
      for (size_t k = 1; whole && k < length; ++k) {
        const auto next = static_cast<unsigned char>(text[i + k]);
        whole = (next & 0xC0) == 0x80;
        c = (c << 6) | (next & 0x3F);
      }
      characters.push_back(whole ? c : byte);
      offsets.push_back(i);
      i += whole ? length : 1;
    }
    offsets.push_back(text.size());
  }
  size_t size() const { return characters.size(); }
};

}  // namespace millrace
