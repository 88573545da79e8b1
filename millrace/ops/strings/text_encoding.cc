#include "millrace/ops/strings/text_encoding.h"

#include <iconv.h>

#include <cerrno>
#include <cstring>

namespace millrace {
namespace {

constexpr uint32_t kLargest = 0x10ffff;

uint32_t byte_at(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }
bool is_surrogate(uint32_t code) { return code >= 0xd800 && code < 0xe000; }

class Utf8Decoder final : public TextDecoder {
 public:
  DecodedCharacter next(std::string_view text) override {
    const uint32_t first = byte_at(text, 0);
    if (first < 0x80) return {first, 1, true};
    if (first < 0xc2 || first > 0xf4) return {};
    const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    uint32_t code = first & (0xffU >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
      // The second byte is bounded further: neither longer forms nor surrogates nor numbers above
      // the largest.
      uint32_t low = 0x80, high = 0xbf;
      if (i == 1) {
        if (first == 0xe0) low = 0xa0;
        if (first == 0xed) high = 0x9f;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f;
      }
      if (i >= text.size() || byte_at(text, i) < low || byte_at(text, i) > high) {
        return {0, i, false};
      }
      code = code << 6 | (byte_at(text, i) & 0x3f);
    }
    return {code, length, true};
  }
};

// UTF-16 and UTF-32 in one byte order.
class WideDecoder final : public TextDecoder {
 public:
  WideDecoder(size_t unit, bool big) : unit_(unit), big_(big) {}
  DecodedCharacter next(std::string_view text) override {
    if (text.size() < unit_) return {0, text.size(), false};
    const uint32_t code = read(text);
    if (unit_ == 4) return {code, 4, code <= kLargest && !is_surrogate(code)};
    if (!is_surrogate(code)) return {code, 2, true};
    if (code >= 0xdc00 || text.size() < 4) return {0, code >= 0xdc00 ? 2 : text.size(), false};
    const uint32_t low = read(text.substr(2));
    if (low < 0xdc00 || low >= 0xe000) return {0, 2, false};
    return {0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00), 4, true};
  }

 private:
  uint32_t read(std::string_view text) const {
    uint32_t value = 0;
    for (size_t i = 0; i < unit_; ++i) {
      value = value << 8 | byte_at(text, big_ ? i : unit_ - 1 - i);
    }
    return value;
  }

  size_t unit_;
  bool big_;
};

// Encodings whose bytes are the first code points.
class ByteDecoder final : public TextDecoder {
 public:
  explicit ByteDecoder(uint32_t limit) : limit_(limit) {}
  DecodedCharacter next(std::string_view text) override {
    const uint32_t code = byte_at(text, 0);
    return {code, 1, code < limit_};
  }

 private:
  uint32_t limit_;
};

// What the C library converts.
class LibraryDecoder final : public TextDecoder {
 public:
  explicit LibraryDecoder(iconv_t converter) : converter_(converter) {}
  LibraryDecoder(const LibraryDecoder&) = delete;
  LibraryDecoder& operator=(const LibraryDecoder&) = delete;
  ~LibraryDecoder() override { iconv_close(converter_); }

  DecodedCharacter next(std::string_view text) override {
    // Room for one character: the converter stops after it.
    uint32_t code = 0;
    char* out = reinterpret_cast<char*>(&code);
    size_t room = sizeof code;
    char* in = const_cast<char*>(text.data());
    size_t left = text.size();
    iconv(converter_, nullptr, nullptr, nullptr, nullptr);
    const size_t result = iconv(converter_, &in, &left, &out, &room);
    const int error = result == static_cast<size_t>(-1) ? errno : 0;
    const size_t taken = text.size() - left;
    if (room == 0 && taken > 0) return {code, taken, true};
    return {0, error == EINVAL ? text.size() : 1, false};
  }

 private:
  iconv_t converter_;
};

// Letters in upper case, and digits: names differ in nothing else.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c >= 'a' && c <= 'z') plain += static_cast<char>(c - 'a' + 'A');
    if ((c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) plain += c;
  }
  return plain;
}

}  // namespace

Result<std::unique_ptr<TextDecoder>> TextDecoder::make(std::string_view encoding) {
  const std::string name = plain_name(encoding);
  if (name == "UTF8") return std::unique_ptr<TextDecoder>(new Utf8Decoder);
  if (name == "UTF16BE" || name == "UTF16LE" || name == "UTF32BE" || name == "UTF32LE") {
    const bool big = name.ends_with("BE");
    return std::unique_ptr<TextDecoder>(new WideDecoder(name[3] == '1' ? 2 : 4, big));
  }
  if (name == "USASCII" || name == "ASCII") {
    return std::unique_ptr<TextDecoder>(new ByteDecoder(0x80));
  }
  if (name == "ISO88591" || name == "LATIN1") {
    return std::unique_ptr<TextDecoder>(new ByteDecoder(0x100));
  }
  const uint32_t one = 1;
  unsigned char first = 0;
  std::memcpy(&first, &one, 1);
  const std::string given(encoding);
  // An empty name stands for the environment's encoding there.
  const auto none = reinterpret_cast<iconv_t>(-1);
  const iconv_t converter =
      given.empty() ? none : iconv_open(first == 1 ? "UTF-32LE" : "UTF-32BE", given.c_str());
  if (converter == none) {
    return invalid_argument("Could not create converter for input encoding: ", encoding);
  }
  return std::unique_ptr<TextDecoder>(new LibraryDecoder(converter));
}

Result<UnicodeEncoding> unicode_encoding(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain == "UTF8") return UnicodeEncoding::kUtf8;
  if (plain == "UTF16BE") return UnicodeEncoding::kUtf16Be;
  if (plain == "UTF32BE") return UnicodeEncoding::kUtf32Be;
  return invalid_argument("Invalid encoding \"", name,
                          "\": expected one of UTF-8, UTF-16-BE, UTF-32-BE");
}

void append_character(uint32_t code, UnicodeEncoding encoding, std::string& text) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte & 0xff); };
  const auto put_pair = [&](uint32_t unit) {
    put(unit >> 8);
    put(unit);
  };
  switch (encoding) {
    case UnicodeEncoding::kUtf8:
      if (code < 0x80) return put(code);
      if (code < 0x800) {
        put(0xc0 | code >> 6);
      } else if (code < 0x10000) {
        put(0xe0 | code >> 12);
        put(0x80 | (code >> 6 & 0x3f));
      } else {
        put(0xf0 | code >> 18);
        put(0x80 | (code >> 12 & 0x3f));
        put(0x80 | (code >> 6 & 0x3f));
      }
      return put(0x80 | (code & 0x3f));
    case UnicodeEncoding::kUtf16Be:
      if (code < 0x10000) return put_pair(code);
      put_pair(0xd800 + ((code - 0x10000) >> 10));
      return put_pair(0xdc00 + (code & 0x3ff));
    case UnicodeEncoding::kUtf32Be:
      put_pair(code >> 16);
      return put_pair(code);
  }
}

bool is_unicode_character(int64_t number) {
  if (number < 0 || number > kLargest) return false;
  const auto code = static_cast<uint32_t>(number);
  return !is_surrogate(code) && (code & 0xfffe) != 0xfffe && !(code >= 0xfdd0 && code <= 0xfdef);
}

}  // namespace millrace
