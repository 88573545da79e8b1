#pragma once

#include <atomic>

#include "millrace/tensor/tensor.h"

namespace millrace {

// A copy of a tensor that a Snapshot keeps, made because its variable is to change. A step waits
// for it, and nobody for the save that has the snapshot: so the save gives way, chunk by chunk, and
// the copy has the memory to itself.
class SnapshotCopy {
 public:
  static Result<Tensor> make(const Tensor& tensor, Allocator& allocator) {
    const SnapshotCopy copying;
    return tensor.clone(allocator);
  }
  // For saves: returns when no such copy is being made, nearly always at once.
  static void give_way() {
    for (int n; (n = copying_.load(std::memory_order_acquire)) != 0;) copying_.wait(n);
  }

 private:
  SnapshotCopy() { copying_.fetch_add(1, std::memory_order_acq_rel); }
  ~SnapshotCopy() {
    if (copying_.fetch_sub(1, std::memory_order_acq_rel) == 1) copying_.notify_all();
  }

  static inline std::atomic<int> copying_{0};
};

}  // namespace millrace
