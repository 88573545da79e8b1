#include "millrace/distributed/narrowed_worker.h"

namespace millrace {
namespace {

class NarrowedWorker final : public WorkerInterface {
 public:
  NarrowedWorker(Ref<WorkerInterface> worker, GraphRights rights)
      : worker_(std::move(worker)), rights_(rights) {}

  void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) override {
    worker_->get_status(std::move(done));
  }
  void register_graph(RegisterGraphRequest request,
                      UniqueFunction<void(Result<std::string>)> done) override {
    request.scope.rights = request.scope.rights & rights_;
    worker_->register_graph(std::move(request), std::move(done));
  }
  void deregister_graph(std::string graph_handle, StatusDone done) override {
    worker_->deregister_graph(std::move(graph_handle), std::move(done));
  }
  void run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override {
    worker_->run_graph(std::move(request), std::move(cancel), std::move(done));
  }
  void recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                   UniqueFunction<void(Status, Value)> done) override {
    worker_->recv_tensor(std::move(request), std::move(cancel), std::move(done));
  }
  void give_tensor(int64_t step_id, std::string key, Value value, StatusDone done) override {
    worker_->give_tensor(step_id, std::move(key), std::move(value), std::move(done));
  }
  void abort_step(int64_t step_id, Status reason, StatusDone done) override {
    worker_->abort_step(step_id, std::move(reason), std::move(done));
  }
  void cleanup_step(int64_t step_id, StatusDone done) override {
    worker_->cleanup_step(step_id, std::move(done));
  }
  bool needs_lease() const override { return worker_->needs_lease(); }
  void keep_session(KeepSessionRequest request, StatusDone done) override {
    worker_->keep_session(std::move(request), std::move(done));
  }
  void delete_session(std::string session, StatusDone done) override {
    worker_->delete_session(std::move(session), std::move(done));
  }
  void get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) override {
    if (step_id == 0 && !rights_.state) return done(refuse(Reach::kState, "GetActivity"));
    worker_->get_activity(step_id, std::move(done));
  }
  void reset(std::vector<std::string> containers, StatusDone done) override {
    if (!rights_.state) return done(refuse(Reach::kState, "Reset"));
    worker_->reset(std::move(containers), std::move(done));
  }
  void join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<GroupView>)> done) override {
    if (!rights_.state) return done(refuse(Reach::kState, "JoinGroup"));
    worker_->join_group(std::move(request), std::move(cancel), std::move(done));
  }
  void recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<Tensor>)> done) override {
    if (!rights_.state) return done(refuse(Reach::kState, "RecvChunk"));
    worker_->recv_chunk(std::move(request), std::move(cancel), std::move(done));
  }
  void end_group(EndGroupRequest request, StatusDone done) override {
    if (!rights_.state) return done(refuse(Reach::kState, "EndGroup"));
    worker_->end_group(std::move(request), std::move(done));
  }

 private:
  const Ref<WorkerInterface> worker_;
  const GraphRights rights_;
};

}  // namespace

Ref<WorkerInterface> make_narrowed_worker(Ref<WorkerInterface> worker, GraphRights rights) {
  if (rights.all()) return worker;
  return make_ref<NarrowedWorker>(std::move(worker), rights);
}

}  // namespace millrace
