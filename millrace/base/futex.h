#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

// The kernel's wait-on-an-address, for waits that must cost nothing while nobody waits.

namespace millrace {

// Blocks while `word` is `expected`, until a futex_wake. May return for no reason.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

// Wakes those that wait on `word`. Does not touch the memory, so the word may be gone by now; who
// waits on whatever came to its place sees a wake-up for no reason.
inline void futex_wake_all(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

}  // namespace millrace
