#include "millrace/io/json_reader.h"

#include <charconv>
#include <cstdio>

namespace millrace {
namespace {

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

}  // namespace

void JsonReader::skip_space() {
  const size_t at = rest_.find_first_not_of(" \t\r\n");
  rest_.remove_prefix(at == std::string_view::npos ? rest_.size() : at);
}

bool JsonReader::take(char c) {
  skip_space();
  if (!ok_ || rest_.empty() || rest_.front() != c) return fail();
  rest_.remove_prefix(1);
  return true;
}

bool JsonReader::begin(char bracket) {
  first_ = true;
  return take(bracket);
}

bool JsonReader::next(char close) {
  skip_space();
  if (!ok_ || rest_.empty()) return fail();
  const bool first = first_;
  first_ = false;
  if (rest_.front() == close) {
    rest_.remove_prefix(1);
    return false;
  }
  return first || take(',');
}

bool JsonReader::hex(uint32_t& out) {
  if (rest_.size() < 4) return fail();
  const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + 4, out, 16);
  if (error != std::errc() || end != rest_.data() + 4) return fail();
  rest_.remove_prefix(4);
  return true;
}

bool JsonReader::escape(std::string& out) {
  if (rest_.empty()) return fail();
  const char c = rest_.front();
  rest_.remove_prefix(1);
  if (c == 'u') {
    uint32_t code = 0;
    if (!hex(code)) return false;
    if (code >= 0xD800 && code < 0xDC00) {  // the first half of a pair
      uint32_t second = 0;
      if (!rest_.starts_with("\\u")) return fail();
      rest_.remove_prefix(2);
      if (!hex(second) || second < 0xDC00 || second > 0xDFFF) return fail();
      code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      return fail();
    }
    append_utf8(out, code);
    return true;
  }
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const size_t at = kLetters.find(c);
  if (at == std::string_view::npos) return fail();
  out.push_back(kMeanings[at]);
  return true;
}

bool JsonReader::string(std::string& out) {
  if (!take('"')) return false;
  out.clear();
  while (!rest_.empty()) {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (c == '"') return is_utf8(out) || fail();
    if (c == '\\') {
      if (!escape(out)) return false;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      return fail();
    } else {
      out.push_back(c);
    }
  }
  return fail();
}

bool JsonReader::key(std::string& out) { return string(out) && take(':'); }

bool JsonReader::number(uint64_t& out) {
  skip_space();
  if (!ok_) return false;
  const char* end = rest_.data() + rest_.size();
  const auto [at, error] = std::from_chars(rest_.data(), end, out);
  const auto digits = static_cast<size_t>(at - rest_.data());
  if (error != std::errc() || (digits > 1 && rest_.front() == '0')) return fail();
  rest_.remove_prefix(digits);
  return true;
}

bool JsonReader::at_end() {
  skip_space();
  return ok_ && rest_.empty();
}

bool is_utf8(std::string_view bytes) {
  const auto at = [&bytes](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  for (size_t i = 0; i < bytes.size();) {
    const uint8_t lead = at(i);
    const size_t more = lead < 0x80 ? 0 : lead < 0xC2 ? 9 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (lead > 0xF4 || i + more >= bytes.size()) return false;
    for (size_t k = 1; k <= more; ++k) {
      if ((at(i + k) & 0xC0) != 0x80) return false;
    }
    const bool wrong = (lead == 0xE0 && at(i + 1) < 0xA0) || (lead == 0xED && at(i + 1) > 0x9F) ||
                       (lead == 0xF0 && at(i + 1) < 0x90) || (lead == 0xF4 && at(i + 1) > 0x8F);
    if (wrong) return false;
    i += more + 1;
  }
  return true;
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out += '"';
}

}  // namespace millrace
