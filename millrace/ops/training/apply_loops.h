#pragma once

#include <cstdint>

#include "millrace/tensor/dtype.h"

namespace millrace {

// One pass of an optimiser over n elements: slots[0] is the variable, the rest what the optimiser
// remembers; `scalars` are its other arguments in their order. All of one type, float or double.
using ApplyLoop = void (*)(void* const* slots, const void* grad, const void* scalars, int64_t n);

// The loop of optimiser number `rule` (of OptimizerRules) with its flag, in the source for each
// instruction set.
ApplyLoop apply_loop_baseline(int rule, bool flag, DType dtype);
ApplyLoop apply_loop_avx2(int rule, bool flag, DType dtype);
ApplyLoop apply_loop_avx512(int rule, bool flag, DType dtype);

}  // namespace millrace
