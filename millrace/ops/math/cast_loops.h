#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// Conversions that gain by wide vectors.
struct CastLoops {
  using Loop = void (*)(const void* from, void* to, int64_t n);
  // As CastFunction converts; null where the plain loop is as good.
  Loop (*find)(DType from, DType to);
};

}  // namespace millrace
