#include "millrace/ops/strings/parse_number.h"

#include <charconv>
#include <cstdlib>
#include <string>

namespace millrace {
namespace {

std::string_view stripped(std::string_view s) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const size_t begin = s.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(kSpace) + 1 - begin);
}

bool is_word(std::string_view s, std::string_view word) {
  if (s.size() != word.size()) return false;
  for (size_t i = 0; i < s.size(); ++i) {
    if ((s[i] | 0x20) != word[i]) return false;
  }
  return true;
}

template <class T>
bool parse_floating(std::string_view text, T& value) {
  std::string_view digits = stripped(text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const bool hex = digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == 'x';
  const std::string_view allowed = hex ? "0123456789abcdefABCDEFxX" : "0123456789.eE+-";
  const bool word = is_word(digits, "inf") || is_word(digits, "nan");
  if (digits.empty() || digits[0] == '-' ||
      (!word && digits.find_first_not_of(allowed) != std::string_view::npos)) {
    return false;
  }
  if (hex) digits.remove_prefix(2);
  value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value,
                      hex ? std::chars_format::hex : std::chars_format::general);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return false;
  if (error == std::errc::result_out_of_range) {
    // Too large or too small: from_chars does not say which.
    value = static_cast<T>(std::strtod(std::string(digits).c_str(), nullptr));
  }
  if (negative) value = -value;
  return true;
}

template <class T>
bool parse_integer(std::string_view text, T& value) {
  const std::string_view digits = stripped(text);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace

bool parse_number(std::string_view text, float& value) { return parse_floating(text, value); }
bool parse_number(std::string_view text, double& value) { return parse_floating(text, value); }
bool parse_number(std::string_view text, int32_t& value) { return parse_integer(text, value); }
bool parse_number(std::string_view text, int64_t& value) { return parse_integer(text, value); }

}  // namespace millrace
