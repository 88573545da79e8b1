#include "millrace/distributed/grpc/library/poller.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace millrace::grpc_library {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kQuickNs = 200'000;
constexpr std::chrono::milliseconds kPatience{5};

int64_t since_ns(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

}  // namespace

Poller::Poller(std::unique_ptr<grpc::CompletionQueue> queue, StartTask start)
    : queue_(std::move(queue)), start_(std::move(start)) {
  this->start();
  {
    std::lock_guard<std::mutex> lock(mu_);
    ++threads_;
  }
  start_([this] { watch(); });
}

Poller::~Poller() {
  queue_->Shutdown();
  std::unique_lock<std::mutex> lock(mu_);
  stopping_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return threads_ == 0; });
}

void Poller::start() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    ++threads_;
  }
  start_([this] { poll(); });
}

void Poller::let_another_wait() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (waiting_ > 0) return;
    ++threads_;
  }
  start_([this] { poll(); });
}

void Poller::poll() {
  poll_while_needed();
  std::lock_guard<std::mutex> lock(mu_);
  if (--threads_ == 0) changed_.notify_all();
}

void Poller::poll_while_needed() {
  for (;;) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (waiting_ > 0) return;
      ++waiting_;
    }
    void* tag = nullptr;
    bool ok = false;
    const bool more = queue_->Next(&tag, &ok);
    {
      std::lock_guard<std::mutex> lock(mu_);
      --waiting_;
    }
    if (!more) return;
    if (const Listener::Work work = static_cast<Event*>(tag)->happened(ok)) do_work(work);
  }
}

void Poller::do_work(const Listener::Work& work) {
  const bool quick = slow_.load(std::memory_order_relaxed) < kSlow;
  if (quick) {
    work_count_.fetch_add(1);
    working_.fetch_add(1);
    if (!watched_.exchange(true)) {
      std::lock_guard<std::mutex> lock(mu_);
      changed_.notify_all();
    }
  } else {
    let_another_wait();
  }
  const Clock::time_point start = Clock::now();
  work();
  const int slow = slow_.load(std::memory_order_relaxed);
  slow_.store(since_ns(start) < kQuickNs ? 0 : std::min(slow + 1, kSlow),
              std::memory_order_relaxed);
  if (quick) working_.fetch_sub(1);
}

void Poller::watch() {
  watch_while_needed();
  std::lock_guard<std::mutex> lock(mu_);
  if (--threads_ == 0) changed_.notify_all();
}

void Poller::watch_while_needed() {
  int64_t seen = 0;
  std::unique_lock<std::mutex> lock(mu_);
  while (!stopping_) {
    const int64_t count = work_count_.load();
    if (working_.load() > 0 && count == seen) {
      // The one that was begun before the last look.
      lock.unlock();
      let_another_wait();
      lock.lock();
    }
    // Before the last look at the count: who begins after that finds that nobody watches.
    watched_.store(false);
    if (count == seen && work_count_.load() == seen && working_.load() == 0) {
      changed_.wait(lock, [this] { return stopping_ || watched_.load(); });
    } else {
      watched_.store(true);
      changed_.wait_for(lock, kPatience, [this] { return stopping_; });
    }
    seen = count;
  }
}

}  // namespace millrace::grpc_library
