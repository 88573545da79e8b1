#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "millrace/base/mutex.h"
#include "millrace/distributed/request_ids.h"
#include "millrace/session/session.h"

namespace tensorflow {
class ExtendSessionRequest;
class GraphDef;
class ListDevicesResponse;
class MakeCallableRequest;
class PartialRunSetupRequest;
class RunCallableRequest;
class RunCallableResponse;
class RunStepRequest;
class RunStepResponse;
}  // namespace tensorflow

namespace millrace {

// A session that a client of TensorFlow's MasterService has: a graph that grows by messages, a
// Session that runs it, and what the client names by numbers. What a request says wrongly is
// INVALID_ARGUMENT. The calls that run something wait for it. Thread-safe.
//
// `digest` is a hash of the request's bytes. Requests with an id that arrive a second time, from a
// client that lost the answer: those that make something get the answer of the first time; those
// that run something are ABORTED, as it may have been done already. Requests without an id are
// taken as they come.
class MasterSession : public RefCounted {
 public:
  // Past these a request is RESOURCE_EXHAUSTED.
  struct Limits {
    int callables = 1000;  // at once
    // What the constants of one message, or the feeds of one run, may take in memory beyond the
    // message's own bytes: a few bytes may stand for a large tensor.
    int64_t expanded_bytes = int64_t{2} << 30;
  };

  MasterSession(Ref<Graph> graph, std::unique_ptr<Session> session, Limits limits);

  // Adds the message's nodes and functions to a graph; on error the graph is as it was.
  static Status import(const tensorflow::GraphDef& def, const Limits& limits, Graph& graph);

  // The new version. ABORTED when the request was made for another one than the graph has. On error
  // nothing changes, except that a graph of more than ten million nodes, functions inlined, cannot
  // be run any more.
  Result<int64_t> extend(const tensorflow::ExtendSessionRequest& request);
  Status run_step(const tensorflow::RunStepRequest& request, uint64_t digest,
                  Ref<CancellationToken> cancel, tensorflow::RunStepResponse& response);
  Result<std::string> partial_run_setup(const tensorflow::PartialRunSetupRequest& request,
                                        uint64_t digest);
  Result<int64_t> make_callable(const tensorflow::MakeCallableRequest& request, uint64_t digest);
  Status run_callable(const tensorflow::RunCallableRequest& request, uint64_t digest,
                      Ref<CancellationToken> cancel, tensorflow::RunCallableResponse& response);
  // INVALID_ARGUMENT for a number that no callable has.
  Status release_callable(int64_t number);
  std::vector<Device::Info> list_devices() const { return session_->list_devices(); }

  // Cancels what runs and waits for it. Later calls are FAILED_PRECONDITION.
  void close();
  bool closed() const { return closed_.load(); }

 private:
  struct Prepared {
    std::shared_ptr<Callable> callable;
    RunOptions options;
  };

  Status check_room() const MR_REQUIRES(mu_);  // for one more callable
  Result<int64_t> make_callable_now(const tensorflow::MakeCallableRequest& request);

  const Ref<Graph> graph_;
  const std::unique_ptr<Session> session_;
  const Limits limits_;
  std::atomic<bool> closed_{false};
  RequestIds requests_;

  Mutex graph_mu_;  // held while the graph grows
  int64_t version_ MR_GUARDED_BY(graph_mu_) = 0;

  mutable Mutex mu_;
  std::map<int64_t, Prepared> callables_ MR_GUARDED_BY(mu_);
  int64_t next_callable_ MR_GUARDED_BY(mu_) = 1;
};

}  // namespace millrace
