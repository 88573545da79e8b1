#pragma once

#include <string>

#include "millrace/base/str_cat.h"

namespace millrace {

// A place in C++ source. As a default argument, SourceLocation::current() is the caller's place.
struct SourceLocation {
  const char* file = "";  // a string literal: never freed
  int line = 0;

  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          int line = __builtin_LINE()) {
    return {file, line};
  }
};

// "file:line".
inline void append_to(std::string& out, const SourceLocation& location) {
  append_to(out, location.file);
  append_to(out, ':');
  append_to(out, location.line);
}

}  // namespace millrace
