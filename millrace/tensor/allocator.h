#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// Where memory lies, and so who may touch it.
enum class MemorySpace : uint8_t {
  kHost,        // any CPU thread
  kPinnedHost,  // any CPU thread, and a device's copy engines
  kDevice,      // kernels of one device only
};

struct AllocatorStats {
  int64_t bytes_in_use = 0;
  int64_t peak_bytes_in_use = 0;
  int64_t num_allocations = 0;  // since the start
  int64_t largest_allocation = 0;
  int64_t bytes_cached = 0;  // free, kept for reuse
};

// Gives out memory for tensors. Thread-safe.
class Allocator {
 public:
  static constexpr size_t kAlignment = 64;

  virtual ~Allocator() = default;
  virtual const char* name() const = 0;
  virtual MemorySpace space() const = 0;
  // Memory of at least `bytes`, aligned to kAlignment; null when there is none (never aborts). A
  // zero `bytes` is answered with a valid pointer.
  virtual void* allocate(size_t bytes) = 0;
  // Takes back what allocate(bytes) gave. `bytes` is the same number.
  virtual void deallocate(void* data, size_t bytes) = 0;
  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
};

// The process's allocator for host memory: freed blocks are kept by size class (per thread for
// small ones) and reused. A total over MILLRACE_CPU_MEMORY_LIMIT bytes, where set, is refused.
Allocator& cpu_allocator();

}  // namespace millrace
