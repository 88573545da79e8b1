#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

// Text from parts, without streams: str_cat("expected ", 3, " inputs, got ", n).
//
// A type joins in by having `void append_to(std::string& out, const T&)` in its own namespace.

namespace millrace {

void append_to(std::string& out, std::string_view text);
void append_to(std::string& out, const char* text);
void append_to(std::string& out, const std::string& text);
void append_to(std::string& out, char c);
void append_to(std::string& out, bool b);  // "true" or "false"
void append_to(std::string& out, long long v);
void append_to(std::string& out, unsigned long long v);
void append_to(std::string& out, float v);  // shortest text that reads back as the same value
void append_to(std::string& out, double v);

template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>)
void append_to(std::string& out, T v) {
  if constexpr (std::is_signed_v<T>) {
    append_to(out, static_cast<long long>(v));
  } else {
    append_to(out, static_cast<unsigned long long>(v));
  }
}

template <class... Parts>
std::string str_cat(const Parts&... parts) {
  std::string out;
  (append_to(out, parts), ...);
  return out;
}

// The elements of `items` with `separator` between them.
template <class Range>
std::string str_join(const Range& items, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) append_to(out, separator);
    first = false;
    append_to(out, item);
  }
  return out;
}

}  // namespace millrace
