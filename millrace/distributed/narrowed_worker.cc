#include "millrace/distributed/narrowed_worker.h"

#include "millrace/distributed/forwarding_worker.h"

namespace millrace {
namespace {

class NarrowedWorker final : public ForwardingWorker {
 public:
  NarrowedWorker(Ref<WorkerInterface> worker, GraphRights rights)
      : worker_(std::move(worker)), rights_(rights) {}

  void register_graph(RegisterGraphRequest request,
                      UniqueFunction<void(Result<std::string>)> done) override {
    request.scope.rights = request.scope.rights & rights_;
    ForwardingWorker::register_graph(std::move(request), std::move(done));
  }
  void get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) override {
    if (step_id == 0 && !rights_.state) return done(refuse(Reach::kState, "GetActivity"));
    ForwardingWorker::get_activity(step_id, std::move(done));
  }
  void reset(std::vector<std::string> containers, StatusDone done) override {
    if (!rights_.state) return done(refuse(Reach::kState, "Reset"));
    ForwardingWorker::reset(std::move(containers), std::move(done));
  }
  void join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<GroupView>)> done) override {
    if (!rights_.state) return done(refuse(Reach::kState, "JoinGroup"));
    ForwardingWorker::join_group(std::move(request), std::move(cancel), std::move(done));
  }
  void recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<Tensor>)> done) override {
    if (!rights_.state) return done(refuse(Reach::kState, "RecvChunk"));
    ForwardingWorker::recv_chunk(std::move(request), std::move(cancel), std::move(done));
  }
  void end_group(EndGroupRequest request, StatusDone done) override {
    if (!rights_.state) return done(refuse(Reach::kState, "EndGroup"));
    ForwardingWorker::end_group(std::move(request), std::move(done));
  }

 protected:
  Result<Ref<WorkerInterface>> find_worker() const override { return worker_; }

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
