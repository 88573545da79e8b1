#include "millrace/base/blocking_threads.h"

#include <utility>

#include "millrace/base/log.h"

namespace millrace {

BlockingThreads::~BlockingThreads() {
  MutexLock lock(mutex_);
  while (!queue_.empty() || idle_ < alive_) all_done_.wait(mutex_);
  stop_ = true;
  work_or_stop_.notify_all();
  while (alive_ > 0) all_done_.wait(mutex_);
  join_ended();
}

void BlockingThreads::schedule(UniqueFunction<void()> task) {
  MutexLock lock(mutex_);
  join_ended();
  queue_.push_back(std::move(task));
  if (queue_.size() <= idle_) {
    work_or_stop_.notify_one();
    return;
  }
  pthread_t thread;
  if (pthread_create(&thread, nullptr, &thread_main, this) == 0) {
    pthread_setname_np(thread, "mr-blocking");
    ++alive_;
    return;
  }
  MR_LOG(kWarning, "the system gives no more threads; a task that may block waits for one of ",
         alive_);
  if (alive_ > 0) return;
  UniqueFunction<void()> mine = std::move(queue_.back());
  queue_.pop_back();
  lock.unlock();
  mine();
}

void BlockingThreads::keep_threads() {
  MutexLock lock(mutex_);
  keep_ = true;
  join_ended();
}

size_t BlockingThreads::count() {
  MutexLock lock(mutex_);
  return alive_;
}

size_t BlockingThreads::idle_count() {
  MutexLock lock(mutex_);
  return idle_;
}

void* BlockingThreads::thread_main(void* self) {
  static_cast<BlockingThreads*>(self)->run();
  return nullptr;
}

void BlockingThreads::run() {
  MutexLock lock(mutex_);
  while (true) {
    ++idle_;
    if (queue_.empty()) all_done_.notify_all();
    const Deadline deadline = Deadline::after_nanos(idle_ns_);
    bool in_time = true;
    while (queue_.empty() && !stop_ && (in_time || keep_)) {
      if (keep_) {
        work_or_stop_.wait(mutex_);
      } else {
        in_time = work_or_stop_.wait_until(mutex_, deadline);
      }
    }
    --idle_;
    if (queue_.empty()) break;
    UniqueFunction<void()> task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
  --alive_;
  ended_.push_back(pthread_self());
  all_done_.notify_all();
}

void BlockingThreads::join_ended() {
  // They have let go of the mutex or are about to, so this does not wait for long.
  std::vector<pthread_t> ended = std::exchange(ended_, {});
  if (ended.empty()) return;
  mutex_.unlock();
  for (const pthread_t thread : ended) pthread_join(thread, nullptr);
  mutex_.lock();
}

}  // namespace millrace
