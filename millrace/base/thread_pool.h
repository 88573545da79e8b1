#pragma once

#include <cstdint>

#include "millrace/base/function.h"
#include "millrace/base/status.h"

namespace millrace {

class CancellationToken;

// The process's one pool of worker threads. It serves both the parallelism between steps of a plan
// and the parallelism inside a kernel.
//
// Each worker has a deque of its own: it pushes and pops at one end, idle workers steal from the
// other. A worker that finds nothing spins for some microseconds and then blocks in the kernel, so
// an idle process uses no CPU. Threads start with the first task.
//
// Thread-safe. In a child made by fork() the threads are gone: check_usable() says so, and nothing
// should be scheduled. What is scheduled all the same runs on the caller, so that nothing hangs.
class ThreadPool {
 public:
  // Made on first use with as many threads as the process may use at once: the smaller of its CPU
  // affinity and its cgroup CPU quota (v1 or v2), or MILLRACE_NUM_THREADS where set.
  static ThreadPool& global();

  // A pool of `threads` workers (at least 1), for tests.
  explicit ThreadPool(int threads);
  // A pool without threads, for tests and simulations that decide what runs when: what is
  // scheduled, blocking or not, waits for run_one(). Loops run on their caller; size() is 1.
  struct WithoutThreads {};
  explicit ThreadPool(WithoutThreads);
  // Runs what was scheduled, and what that schedules, then joins. Not from one of its own threads.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The number of workers.
  int size() const;

  // FAILED_PRECONDITION naming fork, when this process is a forked child of the one that made the
  // pool; OK otherwise.
  Status check_usable() const;

  // Runs `task` on some worker, soon. From a worker: pushed on its own deque.
  void schedule(UniqueFunction<void()> task);

  // Runs `task`, which may block for long (file reads, user callbacks), on a thread outside the
  // workers; such threads are made as needed and kept for some seconds.
  void schedule_blocking(UniqueFunction<void()> task);

  // Runs, on this thread, what was scheduled first and has not run in a pool without threads. False
  // when there is nothing, and in other pools.
  bool run_one();

  // True on one of this pool's workers.
  bool on_worker() const;

  // Calls body(begin, end) over disjoint ranges that cover [0, n), on the caller and on workers, up
  // to `max_threads` and up to size() threads together, and returns when all are done. Ranges are
  // cut so that each is worth at least some 10 microseconds, given the cost of one unit in
  // nanoseconds; a small loop runs as body(0, n) on the caller. How ranges are cut does not depend
  // on timing, only on n, the cost and nothing else, so that a body which sums per range gives the
  // same bits with any number of threads. How many threads take part does depend on timing: where
  // the same loop, by its code, n and cost, was quicker with fewer, fewer do (LoopThreads). While
  // it waits, the caller runs only ranges of this loop.
  // Stops starting ranges once `cancel` (may be null) is cancelled.
  void parallel_for(int64_t n, double cost_ns_per_unit, FunctionRef<void(int64_t, int64_t)> body,
                    int max_threads = 1 << 20, const CancellationToken* cancel = nullptr);

 private:
  struct Impl;
  Impl* impl_;
};

// The CPU time per second that the process's cgroups allow (the strictest of them, v1 or v2),
// rounded up; 0 when they set no limit. `root` as for usable_cpus().
int cgroup_cpus(const char* root = "");

// How many CPUs this process may use at once, by affinity and cgroup quota, at least 1. `root`
// stands before /sys and /proc in the paths read, for tests.
int usable_cpus(const char* root = "");

}  // namespace millrace
