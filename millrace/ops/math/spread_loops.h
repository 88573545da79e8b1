#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

struct SpreadLoops {
  // Each of `count` elements `times` times, one after the other, to `out`: of elements of 1, 2, 4
  // and 8 bytes.
  void (*run[4])(const void* from, int64_t count, int64_t times, void* out);
};

}  // namespace millrace
