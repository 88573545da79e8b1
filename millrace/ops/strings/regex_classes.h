#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

// A set of characters, as ranges.
class RegexRanges {
 public:
  static RegexRanges of(char32_t c) {
    RegexRanges out;
    out.add(c, c);
    return out;
  }
  void add(char32_t first, char32_t last) { ranges_.emplace_back(first, last); }
  void add(const RegexRanges& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  }
  // What a letter after a backslash stands for, \d or \n; false for a letter that is no class.
  bool add_letter_class(char32_t letter);
  // What [:name:] stands for; false for a name that is none.
  bool add_named_class(std::string_view name);

  bool single() const { return ranges_.size() == 1 && ranges_[0].first == ranges_[0].second; }
  char32_t first() const { return ranges_[0].first; }

  // Adds the other case of each ASCII letter.
  void fold_case();
  // All characters but these.
  void negate();
  // The same set as ranges that ascend and do not touch.
  std::vector<std::pair<char32_t, char32_t>> sorted() const;

 private:
  std::vector<std::pair<char32_t, char32_t>> ranges_;
};

}  // namespace millrace
