#pragma once

#include <pthread.h>

#include "millrace/base/clock.h"
#include "millrace/base/thread_annotations.h"

namespace millrace {

// A mutual-exclusion lock that clang can check: declare what it guards with MR_GUARDED_BY. Not
// recursive. 40 bytes.
class MR_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex() { pthread_mutex_destroy(&mutex_); }

  void lock() MR_ACQUIRE() { pthread_mutex_lock(&mutex_); }
  void unlock() MR_RELEASE() { pthread_mutex_unlock(&mutex_); }
  bool try_lock() MR_TRY_ACQUIRE(true) { return pthread_mutex_trylock(&mutex_) == 0; }

 private:
  friend class CondVar;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

// Holds a mutex for a scope; may let go of it and take it again in between.
class MR_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MR_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() MR_RELEASE() {
    if (held_) mutex_.unlock();
  }

  void unlock() MR_RELEASE() {
    mutex_.unlock();
    held_ = false;
  }
  void lock() MR_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// Where threads wait for a condition on what a mutex guards. A wait may end without a notification:
// test the condition in a loop.
class CondVar {
 public:
  CondVar();
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;
  ~CondVar() { pthread_cond_destroy(&cond_); }

  void wait(Mutex& mutex) MR_REQUIRES(mutex) { pthread_cond_wait(&cond_, &mutex.mutex_); }
  // False when the deadline passed.
  bool wait_until(Mutex& mutex, Deadline deadline) MR_REQUIRES(mutex);
  void notify_one() { pthread_cond_signal(&cond_); }
  void notify_all() { pthread_cond_broadcast(&cond_); }

 private:
  pthread_cond_t cond_;
};

}  // namespace millrace
