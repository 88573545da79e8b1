#pragma once

#include <grpcpp/completion_queue.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "millrace/distributed/grpc/grpc_library.h"

namespace millrace::grpc_library {

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

// Threads that wait for what happens on a completion queue. One that finds something that takes
// time sees to it first that another waits.
class Poller {
 public:
  Poller(std::unique_ptr<grpc::CompletionQueue> queue, StartTask start);
  // Shuts the queue down: nothing may be asked of it any more. Returns when all has happened that
  // was asked for.
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  grpc::CompletionQueue* queue() { return queue_.get(); }

 private:
  void start();
  void poll();
  // Until the queue is shut down, or there are threads enough.
  void poll_while_needed();

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  const StartTask start_;
  std::mutex mu_;
  std::condition_variable changed_;
  int threads_ = 0;
  int waiting_ = 0;  // of those, for something to happen
};

}  // namespace millrace::grpc_library
