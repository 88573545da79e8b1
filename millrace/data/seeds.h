#pragma once

#include <cstdint>

#include "millrace/kernel/kernel.h"

namespace millrace::data {

// What random numbers of a dataset begin with.
struct Seeds {
  int64_t seed = 0;
  int64_t seed2 = 0;
};

// The seeds in inputs i and i + 1; both zero: drawn.
Result<Seeds> seeds_input(const KernelContext& ctx, int i);

// A generator of seeds is a handle whose name says them: there is nothing behind it.
Tensor make_seed_generator(const KernelContext& ctx, Seeds seeds);
// The seeds of the generator in input i; drawn where it has none.
Result<Seeds> seed_generator_input(const KernelContext& ctx, int i);

}  // namespace millrace::data
