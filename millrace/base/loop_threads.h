#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace millrace {

// What something takes that takes `known` by what was measured so far (0: nothing was), and now
// took `nanos`: about what its quicker runs take, while nothing else wants the processors. Where
// other programs do, times say little of what is the better way, and soon they may be gone.
uint32_t known_nanos(uint32_t known, int64_t nanos);

// Every how many runs of what takes `known` nanoseconds may go another way, which takes `other` (0:
// not known), so that this costs 1.5 % of the time. A power of two, 16 or more.
uint64_t period_of_tries(uint64_t known, uint64_t other);

// Whether the way that needs less takes no longer than the other one, or hardly.
inline bool takes_no_longer(uint64_t less, uint64_t more) { return less * 32 <= more * 33; }

// With how many threads each loop is quickest, by what its runs took: to wake helpers, to wait for
// the last of them and to fetch what lies in their caches costs some microseconds, more where other
// programs use the processors, and no estimate of a loop's work knows that.
//
// A loop begins with all the threads that it may have. Now and then it runs with half as many, or
// twice, often at first; it goes on with what was quicker, and with the fewer of two that take the
// same. Loops that follow each other try together, and those that take long seldom.
//
// Thread-safe, without locks: runs that come at once may lose a measurement. Remembers a thousand
// loops; others begin anew.
class LoopThreads {
 public:
  LoopThreads();

  // How a run of a loop goes about it.
  struct Choice {
    int threads;
    int level;  // the rest is for took()
    uint32_t entry;
    uint64_t loop;
  };
  // For a run of the loop that `loop` tells apart from others, with up to `most` threads (2 or
  // more).
  Choice choose(uint64_t loop, int most);
  // What that run took.
  void took(const Choice& choice, int64_t nanos);

 private:
  // Level i has 2^i threads, the highest of a loop as many as it may have.
  static constexpr int kLevels = 12;
  struct alignas(64) Entry {
    std::atomic<uint64_t> loop{0};  // 0: none
    std::atomic<uint32_t> runs{0};
    std::atomic<int32_t> level{0};
    std::atomic<uint32_t> nanos[kLevels] = {};  // what the quicker runs take; 0: none was measured
  };
  uint32_t find(uint64_t loop);

  std::vector<Entry> entries_;
  std::atomic<uint32_t> runs_{0};
};

}  // namespace millrace
