#pragma once

#include <cstdint>

#include "millrace/data/state.h"

namespace millrace::data {

// Random numbers whose state is one number, so that a position can be saved: the same seeds give
// the same numbers on any machine. (SplitMix64.)
class RandomNumbers {
 public:
  RandomNumbers(int64_t seed, int64_t seed2, int64_t epoch)
      : state_(mix(mix(mix(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(seed2)) ^
                   static_cast<uint64_t>(epoch))) {}

  uint64_t next() { return mix(state_ += kStep); }
  // One of [0, n), n > 0, all with the same probability.
  int64_t below(int64_t n) {
    const auto bound = static_cast<uint64_t>(n);
    const uint64_t unfair = -bound % bound;
    for (;;) {
      const unsigned __int128 product = static_cast<unsigned __int128>(next()) * bound;
      if (static_cast<uint64_t>(product) >= unfair) return static_cast<int64_t>(product >> 64);
    }
  }

  Status fields(StateFields& state) { return state.bits(state_); }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace millrace::data
