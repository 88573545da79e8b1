#pragma once

#include <cstdint>

#include "millrace/base/function.h"

namespace millrace {

// A thread that has heard from another process, and would go back to listen: it may do itself what
// the news sets off, since to wake another thread costs more than a quick task.
//
// What is quick: a task that is known to compute for less than kQuickNs, by what it took before,
// and that waits for nothing but locks that are held as briefly. Whoever hands it over knows that.
// What may read files, call users' code or wait for another task is not quick.
class SpareThread {
 public:
  static constexpr int64_t kQuickNs = 50'000;

  // Calls `work`, and then, from the same place of the stack, the tasks that were handed over
  // meanwhile on this thread, by tasks among them too, in that order. Those that have not begun
  // after `patience_ns` go to the global pool.
  static void run(FunctionRef<void()> work, int64_t patience_ns = 4 * kQuickNs);

  // Hands a quick task over. False, and `task` is untouched, outside of run().
  static bool take(UniqueFunction<void()>& task);
};

}  // namespace millrace
