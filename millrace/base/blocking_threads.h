#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/mutex.h"

namespace millrace {

// Threads for tasks that may block: one more is made whenever a task finds none free, and a thread
// without a task for `idle_ns` ends. Thread-safe.
class BlockingThreads {
 public:
  explicit BlockingThreads(int64_t idle_ns) : idle_ns_(idle_ns) {}
  // Runs what was scheduled, and what that schedules, then joins.
  ~BlockingThreads();
  BlockingThreads(const BlockingThreads&) = delete;
  BlockingThreads& operator=(const BlockingThreads&) = delete;

  // Where the system gives no thread and there is none yet, runs the task before it returns.
  void schedule(UniqueFunction<void()> task);

  // For the end of the process, where what is never destroyed is looked at as it stands: joins the
  // threads that have ended, and lets no other end for want of a task.
  void keep_threads();

  // The threads alive now.
  size_t count();
  // Of those, the ones that wait for a task.
  size_t idle_count();

 private:
  static void* thread_main(void* self);
  void run();
  void join_ended() MR_REQUIRES(mutex_);

  const int64_t idle_ns_;
  Mutex mutex_;
  CondVar work_or_stop_;
  CondVar all_done_;
  std::deque<UniqueFunction<void()>> queue_ MR_GUARDED_BY(mutex_);
  size_t alive_ MR_GUARDED_BY(mutex_) = 0;
  size_t idle_ MR_GUARDED_BY(mutex_) = 0;  // of those alive, waiting for a task
  bool stop_ MR_GUARDED_BY(mutex_) = false;
  bool keep_ MR_GUARDED_BY(mutex_) = false;
  std::vector<pthread_t> ended_ MR_GUARDED_BY(mutex_);  // to be joined
};

}  // namespace millrace
