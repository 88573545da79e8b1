#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "millrace/base/mutex.h"
#include "millrace/distributed/rpc/channel.h"
#include "millrace/distributed/server_limits.h"

namespace millrace {

// The calls that wait on a server for their answers, by the client that made them
// (Message::client), and how many there may be. Thread-safe.
class WaitingCalls : public RefCounted {
 public:
  explicit WaitingCalls(const ServerLimits& limits) : limits_(limits) {}

  // One more of a client, whose request has so many bytes besides the elements of tensors.
  // RESOURCE_EXHAUSTED when it has as many as it may, or more bytes than it may with this one; a
  // call that is its only one is let in whatever it has.
  Status begin(const std::string& client, int64_t bytes);
  void end(const std::string& client, int64_t bytes);

  // Of all clients.
  int64_t count() const;

 private:
  struct Held {
    int64_t calls = 0;
    int64_t bytes = 0;
  };

  const ServerLimits limits_;
  mutable Mutex mu_;
  std::unordered_map<std::string, Held> clients_ MR_GUARDED_BY(mu_);  // those that have some
};

// Hands calls on to `next`, those of a worker that may wait for others (RunGraph, RecvTensor,
// RecvChunk, JoinGroup) as far as `waiting` lets them in. All others are let in always, since they
// end what waits.
Ref<CallHandler> make_limited_service(Ref<CallHandler> next, Ref<WaitingCalls> waiting);

}  // namespace millrace
