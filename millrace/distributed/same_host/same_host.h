#pragma once

#include <memory>
#include <string>

#include "millrace/distributed/rpc/channel.h"
#include "millrace/distributed/same_host/connection.h"

// Calls between processes of one machine and one user: a socket for messages, shared memory for
// tensors. docs/distributed.md tells what goes over them.

namespace millrace {

// Answers calls under a name. Thread-safe.
class SameHostServer {
 public:
  // ALREADY_EXISTS when somebody else answers under `name` (1 to 100 bytes), in this network
  // namespace.
  static Result<std::unique_ptr<SameHostServer>> start(const std::string& name,
                                                       Ref<CallHandler> handler,
                                                       const SameHostOptions& options = {});
  // Closes all connections: what is being answered is cancelled.
  ~SameHostServer();
  SameHostServer(const SameHostServer&) = delete;
  SameHostServer& operator=(const SameHostServer&) = delete;

 private:
  struct Impl;
  explicit SameHostServer(Ref<Impl> impl);
  Ref<Impl> impl_;
};

// A channel to who answers under `name`; connects at the first call, and again after the
// connection was lost. Calls are UNAVAILABLE when nobody answers, or another user's process does.
// `peer` says in messages who should.
Ref<Channel> make_same_host_channel(std::string name, std::string peer,
                                    const SameHostOptions& options = {});

}  // namespace millrace
