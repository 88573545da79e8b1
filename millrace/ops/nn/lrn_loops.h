#pragma once

#include <algorithm>
#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

struct LrnParameters {
  int64_t radius = 5;
  float bias = 1, alpha = 1, beta = 0.5f;

  // Floats that LrnLoops needs for working on one pixel.
  int64_t scratch_size(int64_t channels) const {
    return 2 * (channels + std::min(radius, channels));
  }
};

// Local response normalisation of one pixel, as lrn.cc has it, channels in vectors. Bits are the
// same for every instruction set. `scratch` holds scratch_size() floats.
struct LrnLoops {
  // y[c] = x[c] norm[c]^-beta
  void (*forward)(const LrnParameters& p, const float* x, int64_t channels, float* scratch,
                  float* y);
  // dx[d] = dy[d] norm[d]^-beta - 2 alpha beta x[d] sum of dy[c] y[c] / norm[c] over |d - c| <=
  // radius
  void (*backward)(const LrnParameters& p, const float* x, const float* y, const float* dy,
                   int64_t channels, float* scratch, float* dx);
};

}  // namespace millrace
