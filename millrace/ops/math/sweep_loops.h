#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// Ops of floats, each of what the one before it gives and of an operand, all of them applied to a
// few vectors at a time that stay in registers. Results are to the bit those of the ops' own loops.
struct SweepStep {
  enum Form : uint8_t {
    kSwapped = 1,  // the operand comes first
    kSingle = 2,   // the operand is one number
    kAhead = 4,    // what lies behind the operand's elements is read next and may be fetched
  };
  uint8_t op;  // SweepLoops::find()
  uint8_t form;
  const float* operand;  // null of an op that has none
};

struct SweepLoops {
  static constexpr int kMaxSteps = 32;

  // The number of an op; -1 of one that takes no part. AddN and BiasAdd are no ops here.
  int (*find)(const char* op);
  // What becomes of x[i], i < n, is written to out[i] unless that is null; and its sum, as
  // FoldLoops::rows has it, to *sum, for 16 < n <= kFoldBlock. `out` may be x or an operand.
  // `hints` may change how long it takes. After kAroundCache, finish() of StreamLoops is due.
  enum Hint : uint8_t {
    kAheadOfX = 1,     // what lies behind x is read next and may be fetched
    kAheadOfOut = 2,   // what lies behind out is written next
    kAroundCache = 4,  // out is written around the caches (stream.h)
  };
  void (*run)(const float* x, const SweepStep* steps, int count, int64_t n, float* out, float* sum,
              unsigned hints);
};

}  // namespace millrace
