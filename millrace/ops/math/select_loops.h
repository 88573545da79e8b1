#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// An operand of a loop: element i is at data + i * step, with a step of 0 or 1 elements.
struct SelectOperand {
  const void* data;
  int64_t step;
};

struct SelectLoops {
  // out[i] = picks[i] ? t[i] : e[i] for i < n, of elements of 1, 2, 4 and 8 bytes. `out` may be
  // where t or e is.
  void (*run[4])(const bool* picks, SelectOperand t, SelectOperand e, void* out, int64_t n);
};

}  // namespace millrace
