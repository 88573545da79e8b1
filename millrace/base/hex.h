#pragma once

#include <cstdint>
#include <string>

namespace millrace {

// The 16 digits of a number, high ones first: "00000000deadbeef".
std::string hex_digits(uint64_t value);

}  // namespace millrace
