#include "millrace/base/timer.h"

#include <pthread.h>

#include <algorithm>

#include "millrace/base/clock.h"
#include "millrace/base/log.h"
#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

using Tasks = std::map<std::pair<int64_t, uint64_t>, UniqueFunction<void()>>;

// Never overflows: what is so late never comes.
int64_t moment(int64_t now_ns, int64_t delay_ns) {
  int64_t at;
  return __builtin_add_overflow(now_ns, std::max<int64_t>(delay_ns, 0), &at) ? INT64_MAX : at;
}

// Taken out; empty when it is not there.
UniqueFunction<void()> take(Tasks& tasks, uint64_t ticket) {
  const auto it = std::find_if(tasks.begin(), tasks.end(),
                               [&](const auto& task) { return task.first.second == ticket; });
  if (it == tasks.end()) return nullptr;
  UniqueFunction<void()> task = std::move(it->second);
  tasks.erase(it);
  return task;
}

class RealTimer final : public Timer {
 public:
  int64_t now_ns() const override { return monotonic_nanos(); }

  uint64_t schedule(int64_t delay_ns, UniqueFunction<void()> task) override {
    const int64_t at = moment(monotonic_nanos(), delay_ns);
    MutexLock lock(mu_);
    const uint64_t ticket = ++last_ticket_;
    tasks_.emplace(std::pair(at, ticket), std::move(task));
    // Where the system gives no thread now, it may with the next task.
    if (!running_) running_ = start_thread();
    // Most tasks are taken back before they are due: the thread is not woken for one that can wait
    // until it looks again.
    if (at < sleeps_until_ns_) changed_.notify_all();
    return ticket;
  }

  bool remove(uint64_t ticket) override {
    UniqueFunction<void()> task;  // ends after the lock: what it holds may come back here
    MutexLock lock(mu_);
    task = take(tasks_, ticket);
    return static_cast<bool>(task);
  }

 private:
  // The thread lives as long as the process, and so does the timer.
  bool start_thread() {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    const int error = pthread_create(
        &thread, &detached,
        [](void* self) -> void* {
          static_cast<RealTimer*>(self)->run();
          return nullptr;
        },
        this);
    pthread_attr_destroy(&detached);
    if (error != 0) MR_LOG(kError, "no thread for the timer: error ", error);
    return error == 0;
  }

  void run() {
    MutexLock lock(mu_);
    for (;;) {
      if (tasks_.empty()) {
        sleeps_until_ns_ = INT64_MAX;
        changed_.wait(mu_);
        continue;
      }
      sleeps_until_ns_ = tasks_.begin()->first.first;
      const int64_t left = tasks_.begin()->first.first - monotonic_nanos();
      if (left > 0) {
        changed_.wait_until(mu_, Deadline::after_nanos(left));
        continue;
      }
      UniqueFunction<void()> task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
      lock.unlock();
      ThreadPool::global().schedule_blocking(std::move(task));
      lock.lock();
    }
  }

  Mutex mu_;
  CondVar changed_;
  bool running_ MR_GUARDED_BY(mu_) = false;
  int64_t sleeps_until_ns_ MR_GUARDED_BY(mu_) = INT64_MAX;  // the thread, where it sleeps
  uint64_t last_ticket_ MR_GUARDED_BY(mu_) = 0;
  Tasks tasks_ MR_GUARDED_BY(mu_);
};

}  // namespace

const Ref<Timer>& real_timer() {
  static const Ref<Timer>* timer = new Ref<Timer>(make_ref<RealTimer>());
  return *timer;
}

int64_t ManualTimer::now_ns() const {
  MutexLock lock(mu_);
  return now_ns_;
}

uint64_t ManualTimer::schedule(int64_t delay_ns, UniqueFunction<void()> task) {
  MutexLock lock(mu_);
  const uint64_t ticket = ++last_ticket_;
  tasks_.emplace(std::pair(moment(now_ns_, delay_ns), ticket), std::move(task));
  return ticket;
}

bool ManualTimer::remove(uint64_t ticket) {
  UniqueFunction<void()> task;
  MutexLock lock(mu_);
  task = take(tasks_, ticket);
  return static_cast<bool>(task);
}

void ManualTimer::advance(int64_t ns) {
  MutexLock lock(mu_);
  const int64_t until = moment(now_ns_, ns);
  while (!tasks_.empty() && tasks_.begin()->first.first <= until) {
    now_ns_ = std::max(now_ns_, tasks_.begin()->first.first);
    UniqueFunction<void()> task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
  now_ns_ = std::max(now_ns_, until);
}

size_t ManualTimer::scheduled() const {
  MutexLock lock(mu_);
  return tasks_.size();
}

}  // namespace millrace
