#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/status.h"

namespace millrace {

// What ranks and the first of them say to each other before elements travel. Small, so that it fits
// into a buffer that is always ready for it.
struct MpiMessage {
  enum class Kind : int64_t {
    kReady,   // to the first rank: this one has begun its next execution of an instance
    kLeft,    // to the first rank: this one has given up what it had begun
    kBye,     // to the first rank: this one ends
    kGo,      // to all: the next execution of an instance is to be done now
    kEnd,     // to all: what is not done yet ends with an error, and counts anew
    kClosed,  // to all: a rank has ended, and nothing will be done any more
  };

  Kind kind = Kind::kReady;
  int64_t rank = 0;   // who says it
  int64_t epoch = 0;  // how many ends there were
  int64_t group = 0;
  int64_t instance = 0;
  int64_t number = 0;            // kReady: rows to gather, or whether it sends
  uint64_t hash = 0;             // kReady: of what it does, in full
  int64_t code = 0;              // kEnd
  std::string text;              // what it does, or why it ends
  std::vector<int64_t> numbers;  // kGo: of all ranks

  // Bytes that hold any message between so many ranks.
  static size_t capacity(int ranks);
  // Cut to fit where the text is long.
  std::string encode(int ranks) const;
  // INTERNAL for what no encode() has made.
  static Result<MpiMessage> decode(std::span<const char> bytes, int ranks);
};

}  // namespace millrace
