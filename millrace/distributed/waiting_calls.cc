#include "millrace/distributed/waiting_calls.h"

#include "millrace/distributed/rpc/worker_wire.h"

namespace millrace {
namespace {

// Also of a cluster that a session brought, where another prefix stands before the same name.
bool may_wait(std::string_view method) {
  for (const std::string_view waits : {worker_wire::kRunGraph, worker_wire::kRecvTensor,
                                       worker_wire::kRecvChunk, worker_wire::kJoinGroup}) {
    if (method.ends_with(waits.substr(waits.rfind('/')))) return true;
  }
  return false;
}

class LimitedService final : public CallHandler {
 public:
  LimitedService(Ref<CallHandler> next, Ref<WaitingCalls> waiting)
      : next_(std::move(next)), waiting_(std::move(waiting)) {}

  void handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
              CallDone done) override {
    if (!may_wait(method)) {
      return next_->handle(method, std::move(request), std::move(cancel), std::move(done));
    }
    const auto bytes = static_cast<int64_t>(request.fields.size());
    if (Status full = waiting_->begin(request.client, bytes); !full.ok()) {
      return done(std::move(full), Message());
    }
    auto end = [waiting = waiting_, client = request.client, bytes, done = std::move(done)](
                   Status status, Message answer) mutable {
      waiting->end(client, bytes);
      done(std::move(status), std::move(answer));
    };
    next_->handle(method, std::move(request), std::move(cancel), std::move(end));
  }

 private:
  const Ref<CallHandler> next_;
  const Ref<WaitingCalls> waiting_;
};

}  // namespace

Status WaitingCalls::begin(const std::string& client, int64_t bytes) {
  MutexLock lock(mu_);
  Held& held = clients_[client];
  if (held.calls >= limits_.calls_per_client) {
    return resource_exhausted(held.calls, " calls of ", client, " wait here, as many as ",
                              "MILLRACE_CLUSTER_MAX_CALLS_PER_CLIENT allows one");
  }
  if (held.calls > 0 && held.bytes + bytes > limits_.call_bytes_per_client) {
    return resource_exhausted("the calls of ", client, " that wait here have ", held.bytes,
                              " bytes, and ", bytes, " more are past the ",
                              limits_.call_bytes_per_client >> 20, " MiB that ",
                              "MILLRACE_CLUSTER_MAX_CALL_MB_PER_CLIENT allows one");
  }
  ++held.calls;
  held.bytes += bytes;
  return ok_status();
}

void WaitingCalls::end(const std::string& client, int64_t bytes) {
  MutexLock lock(mu_);
  const auto it = clients_.find(client);
  it->second.bytes -= bytes;
  if (--it->second.calls == 0) clients_.erase(it);
}

int64_t WaitingCalls::count() const {
  int64_t total = 0;
  MutexLock lock(mu_);
  for (const auto& [client, held] : clients_) total += held.calls;
  return total;
}

Ref<CallHandler> make_limited_service(Ref<CallHandler> next, Ref<WaitingCalls> waiting) {
  return make_ref<LimitedService>(std::move(next), std::move(waiting));
}

}  // namespace millrace
