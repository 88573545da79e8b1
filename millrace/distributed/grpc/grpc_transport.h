#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "millrace/distributed/patience.h"
#include "millrace/distributed/rpc/channel.h"

// Calls between machines, over gRPC. It is in a library of its own, libmillrace_grpc.so, which is
// loaded at the first use: UNIMPLEMENTED says how to get it where it is not there.
//
// Methods "/tensorflow.*" are carried as TensorFlow's clients and servers do: the fields of a
// message are the gRPC message, it has no parts, and errors are gRPC's, their text cut at what
// is 3072 bytes on its way. All others are streams as stream_message.h has them.

namespace millrace {

struct GrpcOptions {
  // Names of PEM files, all or none: each side shows the other its certificate, which the authority
  // has signed. Without them everything is plain text.
  std::string authority, certificate, key;
  // A secret that both sides know; empty: none. Who does not say it is UNAUTHENTICATED.
  std::string token;
  // Of a server that only this machine reaches: callers are processes of the server's user, or
  // root's; others are PERMISSION_DENIED.
  bool same_user = false;
  // A peer that says nothing for so long, while calls wait for it, is lost.
  int64_t lost_after_ms = millrace::lost_after_ms();
};

// OK when gRPC is to be had.
Status grpc_available();

// Answers calls at an address. Thread-safe.
class GrpcServer {
 public:
  // `address`: "127.0.0.1:2222"; port 0 takes a free one. UNKNOWN when it is not to be had.
  // `others`, unless null, answers in place of `handler` those who come in but are no processes of
  // the server's user, or root's, on this machine.
  static Result<std::unique_ptr<GrpcServer>> start(const std::string& address,
                                                   Ref<CallHandler> handler,
                                                   const GrpcOptions& options = {},
                                                   Ref<CallHandler> others = nullptr);
  // What is being answered is cancelled. Not from a handler.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const;

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// A channel to who answers at `address`; connects at the first call, and again after the connection
// was lost. `peer` says in messages who should answer.
Result<Ref<Channel>> make_grpc_channel(const std::string& address, std::string peer,
                                       const GrpcOptions& options = {});

}  // namespace millrace
