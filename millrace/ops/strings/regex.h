#pragma once

#include <string_view>
#include <vector>

#include "millrace/base/status.h"

namespace millrace {

// A regular expression in the common part of RE2's language: characters, ., [classes], \d \s \w and
// their opposites, groups, |, * + ? {m,n}, ^ and $ (of the whole text). Works on characters of
// UTF-8; a byte that is none counts as one. Immutable, thread-safe.
//
// Matching follows all ways at once: time is at most the product of the lengths of text and
// expression, whatever they are.
class Regex {
 public:
  // INVALID_ARGUMENT for what is no expression of that language, or one that is too long.
  static Result<Regex> parse(std::string_view pattern);

  // Whether all of the text matches.
  bool full_match(std::string_view text) const;

 private:
  friend class RegexParser;
  struct Range {
    char32_t first, last;
  };
  struct Instruction {
    enum Kind : uint8_t { kSet, kSplit, kBegin, kEnd, kMatch } kind = kMatch;
    bool negated = false;     // kSet: any character but those
    std::vector<Range> set;   // kSet
    int next = 0, other = 0;  // where to go on; kSplit: at both
  };
  void add(int at, size_t position, size_t size, std::vector<int>& states,
           std::vector<size_t>& marks) const;

  std::vector<Instruction> program_;
  int start_ = 0;
};

}  // namespace millrace
