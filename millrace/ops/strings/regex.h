#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/status.h"

namespace millrace {

// A regular expression in the common part of RE2's language: characters, ., [classes] and
// [[:named:]] ones, \d \s \w \b and their opposites, groups (named ones too), |, * + ? {m,n} and
// their lazy forms, ^ and $, the flags i (of ASCII), m, s and U. \p{classes} of Unicode are not
// known. Works on characters of UTF-8; a byte that is none counts as one. Immutable, thread-safe.
//
// Matching follows all ways at once: time is at most the product of the lengths of text and
// expression, whatever they are.
class Regex {
 public:
  // INVALID_ARGUMENT for what is no expression of that language, or one that is too long.
  static Result<Regex> parse(std::string_view pattern);

  // Whether all of the text matches.
  bool full_match(std::string_view text) const;

  // The text with its leftmost match, or with all that do not overlap, replaced. In `rewrite` \0 is
  // the match, \1 to \9 are its groups and \\ is a backslash; what else follows a backslash, and a
  // group that there is not, leave the text as it is. RESOURCE_EXHAUSTED beyond two gigabytes.
  Result<std::string> replace(std::string_view text, std::string_view rewrite, bool all) const;

 private:
  friend class RegexProgram;
  struct Range {
    char32_t first, last;
  };
  struct Instruction {
    enum Kind : uint8_t {
      kSet,    // takes a character of `set`
      kSplit,  // goes on at `next` and, where that leads nowhere, at `other`
      kSave,   // notes the position as number `slot`
      kBegin,  // of the text
      kEnd,
      kBeginLine,
      kEndLine,
      kBoundary,  // of a word
      kNoBoundary,
      kMatch
    } kind = kMatch;
    int next = 0, other = 0;
    int slot = 0;
    std::vector<Range> set;  // ascending
  };
  struct Text;
  struct Threads;
  struct Search;

  std::vector<Instruction> program_;
  int start_ = 0;
  int groups_ = 0;
};

}  // namespace millrace
