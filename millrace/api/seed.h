#pragma once

#include <cstdint>
#include <string_view>

#include "millrace/graph/attr_value.h"

namespace millrace {

// Where the numbers of a random op begin: its attributes `seed` and `seed2`. Both zero: somewhere
// else in every session.
struct Seed {
  int64_t seed = 0;
  int64_t seed2 = 0;

  AttrMap attrs() const { return {{"seed", seed}, {"seed2", seed2}}; }
};

// The seeds of what is called `name` in a program with this seed: the same name draws the same
// numbers whatever else the program builds, another name others. Zeros for a program seed of zero.
Seed derive_seed(int64_t program_seed, std::string_view name);

}  // namespace millrace
