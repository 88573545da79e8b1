#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

// The environment variable's value, or empty when it is not set. The text belongs to the
// environment.
std::string_view env_string(const char* name);

// The variable as a decimal number. When it is not set, `fallback`; when it is no number or not
// within [min, max], that is logged as a warning and `fallback` holds.
int64_t env_int(const char* name, int64_t fallback, int64_t min, int64_t max);

}  // namespace millrace
