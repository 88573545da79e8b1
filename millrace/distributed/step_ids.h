#pragma once

#include <atomic>
#include <cstdint>

#include "millrace/base/hash.h"
#include "millrace/base/ref.h"

namespace millrace {

// The numbers of one master's steps, as the tasks know them: 56 bits that no other master uses,
// below a top byte of 1. Thread-safe.
class StepIds : public RefCounted {
 public:
  // `master` is random, or else the same numbers come again.
  explicit StepIds(uint64_t master) : master_(master) {}

  int64_t next() {
    constexpr uint64_t kMark = uint64_t{1} << 56;
    const uint64_t mixed = hash_combine(master_, count_.fetch_add(1, std::memory_order_relaxed));
    return static_cast<int64_t>((mixed & (kMark - 1)) | kMark);
  }

 private:
  const uint64_t master_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace millrace
