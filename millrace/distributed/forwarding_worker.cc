#include "millrace/distributed/forwarding_worker.h"

#include <type_traits>

namespace millrace {
namespace {

// Calls `call` with the worker, or answers that there is none.
template <class Done, class Call>
void forward(Result<Ref<WorkerInterface>> worker, Done& done, Call call) {
  if (worker.ok()) return call(**worker);
  if constexpr (std::is_invocable_v<Done&, Status, Value>) {
    done(worker.status(), Value());
  } else if constexpr (std::is_invocable_v<Done&, Status, RunGraphResponse>) {
    done(worker.status(), RunGraphResponse());
  } else {
    done(worker.status());
  }
}

}  // namespace

void ForwardingWorker::get_status(UniqueFunction<void(Result<WorkerStatus>)> done) {
  forward(find_worker(), done, [&](WorkerInterface& to) { to.get_status(std::move(done)); });
}

void ForwardingWorker::register_graph(RegisterGraphRequest request,
                                      UniqueFunction<void(Result<std::string>)> done) {
  forward(find_worker(), done,
          [&](WorkerInterface& to) { to.register_graph(std::move(request), std::move(done)); });
}

void ForwardingWorker::deregister_graph(std::string graph_handle, StatusDone done) {
  forward(find_worker(), done, [&](WorkerInterface& to) {
    to.deregister_graph(std::move(graph_handle), std::move(done));
  });
}

void ForwardingWorker::run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                                 UniqueFunction<void(Status, RunGraphResponse)> done) {
  forward(find_worker(), done, [&](WorkerInterface& to) {
    to.run_graph(std::move(request), std::move(cancel), std::move(done));
  });
}

void ForwardingWorker::recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                                   UniqueFunction<void(Status, Value)> done) {
  forward(find_worker(), done, [&](WorkerInterface& to) {
    to.recv_tensor(std::move(request), std::move(cancel), std::move(done));
  });
}

void ForwardingWorker::give_tensor(int64_t step_id, std::string key, Value value, StatusDone done) {
  forward(find_worker(), done, [&](WorkerInterface& to) {
    to.give_tensor(step_id, std::move(key), std::move(value), std::move(done));
  });
}

void ForwardingWorker::abort_step(int64_t step_id, Status reason, StatusDone done) {
  forward(find_worker(), done,
          [&](WorkerInterface& to) { to.abort_step(step_id, std::move(reason), std::move(done)); });
}

void ForwardingWorker::cleanup_step(int64_t step_id, StatusDone done) {
  forward(find_worker(), done,
          [&](WorkerInterface& to) { to.cleanup_step(step_id, std::move(done)); });
}

bool ForwardingWorker::needs_lease() const {
  const Result<Ref<WorkerInterface>> worker = find_worker();
  return !worker.ok() || (*worker)->needs_lease();
}

void ForwardingWorker::keep_session(KeepSessionRequest request, StatusDone done) {
  forward(find_worker(), done,
          [&](WorkerInterface& to) { to.keep_session(std::move(request), std::move(done)); });
}

void ForwardingWorker::delete_session(std::string session, StatusDone done) {
  forward(find_worker(), done,
          [&](WorkerInterface& to) { to.delete_session(std::move(session), std::move(done)); });
}

void ForwardingWorker::get_activity(int64_t step_id,
                                    UniqueFunction<void(Result<WorkerActivity>)> done) {
  forward(find_worker(), done,
          [&](WorkerInterface& to) { to.get_activity(step_id, std::move(done)); });
}

void ForwardingWorker::reset(std::vector<std::string> containers, StatusDone done) {
  forward(find_worker(), done,
          [&](WorkerInterface& to) { to.reset(std::move(containers), std::move(done)); });
}

void ForwardingWorker::join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                                  UniqueFunction<void(Result<GroupView>)> done) {
  forward(find_worker(), done, [&](WorkerInterface& to) {
    to.join_group(std::move(request), std::move(cancel), std::move(done));
  });
}

void ForwardingWorker::recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                                  UniqueFunction<void(Result<Tensor>)> done) {
  forward(find_worker(), done, [&](WorkerInterface& to) {
    to.recv_chunk(std::move(request), std::move(cancel), std::move(done));
  });
}

void ForwardingWorker::end_group(EndGroupRequest request, StatusDone done) {
  forward(find_worker(), done,
          [&](WorkerInterface& to) { to.end_group(std::move(request), std::move(done)); });
}

}  // namespace millrace
