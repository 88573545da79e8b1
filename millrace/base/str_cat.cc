#include "millrace/base/str_cat.h"

#include <charconv>

namespace millrace {
namespace {

template <class T>
void append_number(std::string& out, T v) {
  char text[40];
  const std::to_chars_result r = std::to_chars(text, text + sizeof(text), v);
  out.append(text, r.ptr);
}

}  // namespace

void append_to(std::string& out, std::string_view text) { out.append(text); }
void append_to(std::string& out, const char* text) {
  out.append(text == nullptr ? "(null)" : text);
}
void append_to(std::string& out, const std::string& text) { out.append(text); }
void append_to(std::string& out, char c) { out.push_back(c); }
void append_to(std::string& out, bool b) { out.append(b ? "true" : "false"); }
void append_to(std::string& out, long long v) { append_number(out, v); }
void append_to(std::string& out, unsigned long long v) { append_number(out, v); }
void append_to(std::string& out, float v) { append_number(out, v); }
void append_to(std::string& out, double v) { append_number(out, v); }

void TextPart::append_chars(std::string& out, const void* text) {
  out.append(static_cast<const char*>(text));
}

std::string join_parts(std::initializer_list<TextPart> parts) {
  std::string out;
  for (const TextPart& part : parts) part.append(out);
  return out;
}

}  // namespace millrace
