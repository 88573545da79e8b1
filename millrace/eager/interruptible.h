#pragma once

#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/kernel/step.h"

namespace millrace::eager {

// While it lives, calls on this thread end once `interrupted`, asked some ten times a second while
// a function runs or a kernel waits, answers true. Single kernels run to their end.
class Interruptible {
 public:
  using Interrupted = bool (*)();

  explicit Interruptible(Interrupted interrupted) : before_(here_) { here_ = interrupted; }
  ~Interruptible() { here_ = before_; }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  // What calls on this thread ask; null: nothing.
  static Interrupted here() { return here_; }

 private:
  static thread_local constinit Interrupted here_;
  const Interrupted before_;
};

// The end of something that a thread waits for; derived classes hold what came out of it.
class Ending : public RefCounted {
 public:
  // It is over.
  void over() {
    MutexLock lock(mu_);
    over_ = true;
    changed_.notify_one();
  }
  // Waits for it. False when the thread was interrupted before: then `step`, for which it runs, has
  // been told to stop.
  bool wait(Step& step);

 private:
  Mutex mu_;
  CondVar changed_;
  bool over_ MR_GUARDED_BY(mu_) = false;
};

// For loops of calls on this thread: says now and then whether they are to end.
class InterruptWatch {
 public:
  // The error to end with, or OK.
  Status look();

 private:
  int64_t asked_at_ns_ = 0;
};

}  // namespace millrace::eager
