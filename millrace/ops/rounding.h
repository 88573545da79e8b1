#pragma once

#include <cstdint>

namespace millrace {

// Of numbers from 0 on, the second one not 0; sums of both fit.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace millrace
