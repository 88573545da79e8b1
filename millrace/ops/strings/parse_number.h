#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

// Reads a number with nothing but space around it; false for other texts. A floating number may be
// hexadecimal, "inf" or "nan", and one out of range becomes infinity or zero; an integer out of
// range is none.
bool parse_number(std::string_view text, float& value);
bool parse_number(std::string_view text, double& value);
bool parse_number(std::string_view text, int32_t& value);
bool parse_number(std::string_view text, int64_t& value);

}  // namespace millrace
