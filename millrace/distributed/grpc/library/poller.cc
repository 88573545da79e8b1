#include "millrace/distributed/grpc/library/poller.h"

#include <utility>

namespace millrace::grpc_library {
namespace {

constexpr int kMaxWaiting = 2;

}  // namespace

Poller::Poller(std::unique_ptr<grpc::CompletionQueue> queue, StartTask start)
    : queue_(std::move(queue)), start_(std::move(start)) {
  this->start();
}

Poller::~Poller() {
  queue_->Shutdown();
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock, [this] { return threads_ == 0; });
}

void Poller::start() {
  {
    std::lock_guard<std::mutex> lock(mu_);
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
      if (waiting_ == kMaxWaiting) return;
      ++waiting_;
    }
    void* tag = nullptr;
    bool ok = false;
    const bool more = queue_->Next(&tag, &ok);
    bool alone;
    {
      std::lock_guard<std::mutex> lock(mu_);
      alone = --waiting_ == 0;
    }
    if (!more) return;
    const Listener::Work work = static_cast<Event*>(tag)->happened(ok);
    if (!work) continue;
    if (alone) start();
    work();
  }
}

}  // namespace millrace::grpc_library
