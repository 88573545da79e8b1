#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
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

// One part of a text, by reference. What joins parts is compiled once, not for every list of types.
class TextPart {
 public:
  template <class T>
  TextPart(const T& part)  // NOLINT(google-explicit-constructor)
      : part_(&part), append_([](std::string& out, const void* p) {
          append_to(out, *static_cast<const T*>(p));
        }) {}
  template <size_t kSize>
  TextPart(const char (&text)[kSize])  // NOLINT(google-explicit-constructor)
      : part_(text), append_(append_chars) {}

  void append(std::string& out) const { append_(out, part_); }

 private:
  static void append_chars(std::string& out, const void* text);

  const void* part_;
  void (*append_)(std::string& out, const void* part);
};

std::string join_parts(std::initializer_list<TextPart> parts);

template <class... Parts>
std::string str_cat(const Parts&... parts) {
  return join_parts({TextPart(parts)...});
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
