#pragma once

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "millrace/distributed/grpc/grpc_library.h"

namespace millrace::grpc_library {

// Reading a message of this size takes time: others are heard meanwhile. The chunks of large
// tensors are smaller: to wake another thread for each costs more than it gains.
inline constexpr size_t kLargeMessage = size_t{4} << 20;

// What gRPC was asked for has happened; its tags are pointers to these.
class Event {
 public:
  // `ok`: as gRPC says. What takes time is returned.
  virtual Listener::Work happened(bool ok) = 0;

 protected:
  ~Event() = default;
};

// An event that calls a member of `Owner`.
template <class Owner>
class MemberEvent final : public Event {
 public:
  using Method = Listener::Work (Owner::*)(bool ok);
  MemberEvent(Owner* owner, Method method) : owner_(owner), method_(method) {}
  Listener::Work happened(bool ok) override { return (owner_->*method_)(ok); }

 private:
  Owner* const owner_;
  const Method method_;
};

// Threads that wait for what happens on a completion queue: mostly one, since each more that waits
// is woken in turn. It does itself what has happened, where the last time that was quick;
// otherwise, or when it takes longer than some milliseconds all the same, another waits meanwhile.
class Poller {
 public:
  Poller(std::unique_ptr<grpc::CompletionQueue> queue, StartTask start);
  // Shuts the queue down: nothing may be asked of it any more. Returns when all has happened that
  // was asked for.
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  grpc::CompletionQueue* queue() { return queue_.get(); }

  // Has another thread wait, unless one does: the caller, to whom something has happened, will take
  // its time.
  void let_another_wait();

 private:
  void start();
  void poll();
  // Until the queue is shut down, or there are threads enough.
  void poll_while_needed();
  // So many in a row, and another waits before the next.
  static constexpr int kSlow = 2;

  // Does what takes time perhaps.
  void do_work(const Listener::Work& work);
  // Sees to it that a thread waits while another has been at work for long.
  void watch();
  void watch_while_needed();

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  const StartTask start_;
  std::atomic<int> slow_{kSlow};        // works in a row that were
  std::atomic<int64_t> work_count_{0};  // works that nobody waited beside, since the beginning
  std::atomic<int> working_{0};         // threads, on some of them
  std::atomic<bool> watched_{false};

  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;
  int threads_ = 0;
  int waiting_ = 0;  // of those, for something to happen
};

}  // namespace millrace::grpc_library
