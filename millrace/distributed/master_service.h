#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "millrace/distributed/rpc/channel.h"
#include "millrace/distributed/server_limits.h"
#include "millrace/kernel/graph_rights.h"

namespace millrace {

struct MasterServiceOptions {
  // Where the sessions of clients run: "grpc://" and the server's own address. Their state is that
  // of the devices there, so it outlives them and they share it.
  std::string target;
  // The server's own task, "/job:J/replica:0/task:T": ListDevices calls its devices local.
  std::string task;
  // A serialised ConfigProto, into which those of clients are merged.
  std::string config;
  // What the graphs of clients may reach. Without state, a client's sessions have their own where
  // they ask for it (isolate_session_state), and Reset is PERMISSION_DENIED.
  GraphRights rights;
  // Past this many sessions, one that nothing was asked of for `idle_ms` makes room for the next,
  // the longest idle first; where there is none, CreateSession is RESOURCE_EXHAUSTED.
  int max_sessions = ServerLimits().sessions;
  int64_t idle_ms = 3'600'000;
  // Past this many sessions of one client (Message::client) it is RESOURCE_EXHAUSTED.
  int max_sessions_per_client = ServerLimits().sessions_per_client;
  // What the graphs of all sessions take, as bytes of the messages that brought them; past it
  // CreateSession and ExtendSession are RESOURCE_EXHAUSTED.
  int64_t max_graph_bytes = ServerLimits().graph_bytes;
  // What the signatures of one session take, compiled; those used longest ago are dropped.
  int64_t max_plan_bytes = int64_t{64} << 20;
  // So many calls may be under way, and so many of one session; past it a call is refused at once,
  // RESOURCE_EXHAUSTED, so that none waits behind others that wait for it. Each has a thread for as
  // long as it takes. CloseSession, ReleaseCallable and Reset do not count.
  int max_calls = 4096;
  int max_session_calls = 1024;
  // How many callables, and how many partial runs, a session may have at once.
  int max_callables = 1000;
  int max_partial_runs = 1000;
  // What the constants of one message, or the feeds of one run, may take in memory beyond the
  // message's own bytes; past it the request is RESOURCE_EXHAUSTED.
  int64_t max_expanded_bytes = int64_t{2} << 30;
  // How long CreateSession waits for tasks that do not answer; operation_timeout_in_ms of the
  // client's config comes first.
  int64_t connect_ms = 600'000;
  // Answers the methods that are not of MasterService; null: they are UNIMPLEMENTED.
  Ref<CallHandler> next;
};

// What TensorFlow's own clients talk to: answers the methods "/tensorflow.MasterService/X" with
// Sessions. The fields of a request are the message of proto/master.proto that the method takes,
// the fields of an answer the one that it gives; there are no parts. docs/distributed.md
// ("TensorFlow's clients") says what each does.
//
// Texts of errors that go as the status of a call are cut to 3072 bytes, which is what transports
// of TensorFlow's clients carry. Thread-safe.
class MasterService : public CallHandler {
 public:
  // INVALID_ARGUMENT when the config is no ConfigProto or asks for what there is not, or a limit is
  // below 1.
  static Result<Ref<MasterService>> create(MasterServiceOptions options);
  ~MasterService() override;

  void handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
              CallDone done) override;

  // Closes all sessions and returns when no call is under way any more; from then on calls are
  // UNAVAILABLE. Before the devices end.
  void shut_down();

  // How many sessions there are.
  size_t sessions() const;

 private:
  struct Impl;
  explicit MasterService(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
