#include "millrace/ops/strings/regex_classes.h"

#include <cctype>
#include <limits>

namespace millrace {
namespace {

constexpr char32_t kLast = std::numeric_limits<char32_t>::max();

using Test = int (*)(int);
struct NamedClass {
  std::string_view name;
  Test has;  // of ASCII
};
constexpr NamedClass kNamedClasses[] = {
    {"alnum", [](int c) { return std::isalnum(c); }},
    {"alpha", [](int c) { return std::isalpha(c); }},
    {"ascii", [](int) { return 1; }},
    {"blank", [](int c) { return static_cast<int>(c == ' ' || c == '\t'); }},
    {"cntrl", [](int c) { return static_cast<int>(c < ' ' || c == 0x7F); }},
    {"digit", [](int c) { return std::isdigit(c); }},
    {"graph", [](int c) { return static_cast<int>(c > ' ' && c < 0x7F); }},
    {"lower", [](int c) { return static_cast<int>(c >= 'a' && c <= 'z'); }},
    {"print", [](int c) { return static_cast<int>(c >= ' ' && c < 0x7F); }},
    {"punct", [](int c) { return std::ispunct(c); }},
    {"space", [](int c) { return static_cast<int>(c == ' ' || (c >= '\t' && c <= '\r')); }},
    {"upper", [](int c) { return static_cast<int>(c >= 'A' && c <= 'Z'); }},
    {"word", [](int c) { return static_cast<int>(std::isalnum(c) != 0 || c == '_'); }},
    {"xdigit", [](int c) { return std::isxdigit(c); }},
};

}  // namespace

bool RegexRanges::add_named_class(std::string_view name) {
  for (const NamedClass& known : kNamedClasses) {
    if (known.name != name) continue;
    for (int c = 0; c < 0x80; ++c) {
      if (known.has(c) != 0) add(static_cast<char32_t>(c), static_cast<char32_t>(c));
    }
    return true;
  }
  return false;
}

bool RegexRanges::add_letter_class(char32_t letter) {
  RegexRanges some;
  switch (letter) {
    case 'D':
    case 'd':
      some.add('0', '9');
      break;
    case 'W':
    case 'w':
      some.add_named_class("word");
      break;
    case 'S':
    case 's':
      some.add('\t', '\n');
      some.add('\f', '\r');
      some.add(' ', ' ');
      break;
    case 'a':
      some.add('\a', '\a');
      break;
    case 'f':
      some.add('\f', '\f');
      break;
    case 'n':
      some.add('\n', '\n');
      break;
    case 'r':
      some.add('\r', '\r');
      break;
    case 't':
      some.add('\t', '\t');
      break;
    case 'v':
      some.add('\v', '\v');
      break;
    default:
      return false;
  }
  if (letter == 'D' || letter == 'W' || letter == 'S') some.negate();
  add(some);
  return true;
}

void RegexRanges::fold_case() {
  const size_t count = ranges_.size();
  for (size_t i = 0; i < count; ++i) {
    const auto [first, last] = ranges_[i];
    const auto add_other = [&, first = first, last = last](char32_t low, char32_t high, int shift) {
      const char32_t begin = std::max(first, low), end = std::min(last, high);
      if (begin > end) return;
      add(static_cast<char32_t>(static_cast<int>(begin) + shift),
          static_cast<char32_t>(static_cast<int>(end) + shift));
    };
    add_other('a', 'z', 'A' - 'a');
    add_other('A', 'Z', 'a' - 'A');
  }
}

std::vector<std::pair<char32_t, char32_t>> RegexRanges::sorted() const {
  auto ranges = ranges_;
  std::sort(ranges.begin(), ranges.end());
  std::vector<std::pair<char32_t, char32_t>> out;
  for (const auto& [first, last] : ranges) {
    if (!out.empty() && (out.back().second == kLast || first <= out.back().second + 1)) {
      out.back().second = std::max(out.back().second, last);
    } else {
      out.emplace_back(first, last);
    }
  }
  return out;
}

void RegexRanges::negate() {
  std::vector<std::pair<char32_t, char32_t>> out;
  char32_t next = 0;
  bool more = true;  // whether characters from `next` on are left
  for (const auto& [first, last] : sorted()) {
    if (first > next) out.emplace_back(next, first - 1);
    more = last < kLast;
    next = last + 1;
  }
  if (more) out.emplace_back(next, kLast);
  ranges_ = std::move(out);
}

}  // namespace millrace
