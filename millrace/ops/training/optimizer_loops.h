#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"
#include "millrace/ops/training/optimizer_info.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// Which rows of the slots take which rows of the gradient, one after the other. A dense update is
// one row of all elements.
struct ApplyRows {
  const int64_t* targets;  // rows of the slots
  const int64_t* sources;  // rows of the gradient
  int64_t count;
  int64_t stride;  // elements from one row to the next
  int64_t width;   // elements of a row to update
};

// A pass of an optimiser over rows. slots[0] is the variable, the rest what the optimiser
// remembers; `scalars` are its other arguments in their order. All of one type, float or double.
using ApplyLoop = void (*)(const ApplyRows& rows, void* const* slots, const void* grad,
                           const void* scalars);

// Adds the sums of the squares of the variable and of the optimiser's direction over n elements.
using NormLoop = void (*)(const void* const* slots, const void* grad, const void* scalars,
                          int64_t n, double* squares);

// How many optimisers there are, and what the table says of each.
int num_optimizers();
const OptimizerInfo& optimizer_info(int rule);

// What optimizer_loops_isa.cc has, to be asked of isa_table<OptimizerLoops>().
struct OptimizerLoops {
  // The loop of optimiser number `rule` with its flag.
  ApplyLoop (*apply)(int rule, bool flag, DType dtype);
  // Null for an optimiser without a trust ratio.
  NormLoop (*norm)(int rule, DType dtype);
};

}  // namespace millrace
