#include "millrace/distributed/direct_worker.h"

#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

class DirectWorker final : public WorkerInterface {
 public:
  DirectWorker(FindWorker find, ThreadPool& pool) : find_(std::move(find)), pool_(pool) {}

  void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->get_status(std::move(done));
  }
  void register_graph(RegisterGraphRequest request,
                      UniqueFunction<void(Result<std::string>)> done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    // Not a thread of the pool: the caller, who waits for the answer, may be one.
    pool_.schedule_blocking(
        [worker = *worker, request = std::move(request), done = std::move(done)]() mutable {
          worker->register_graph(std::move(request), std::move(done));
        });
  }
  void deregister_graph(std::string graph_handle, StatusDone done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->deregister_graph(std::move(graph_handle), std::move(done));
  }
  void run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status(), RunGraphResponse());
    pool_.schedule([worker = *worker, request = std::move(request), cancel = std::move(cancel),
                    done = std::move(done)]() mutable {
      worker->run_graph(std::move(request), std::move(cancel), std::move(done));
    });
  }
  void recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                   UniqueFunction<void(Status, Value)> done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status(), Value());
    (*worker)->recv_tensor(std::move(request), std::move(cancel), std::move(done));
  }
  void give_tensor(int64_t step_id, std::string key, Value value, StatusDone done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->give_tensor(step_id, std::move(key), std::move(value), std::move(done));
  }
  void abort_step(int64_t step_id, Status reason, StatusDone done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->abort_step(step_id, std::move(reason), std::move(done));
  }
  void cleanup_step(int64_t step_id, StatusDone done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->cleanup_step(step_id, std::move(done));
  }
  bool needs_lease() const override { return false; }
  void keep_session(KeepSessionRequest request, StatusDone done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->keep_session(std::move(request), std::move(done));
  }
  void get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->get_activity(step_id, std::move(done));
  }
  void delete_session(std::string session, StatusDone done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->delete_session(std::move(session), std::move(done));
  }
  void reset(std::vector<std::string> containers, StatusDone done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->reset(std::move(containers), std::move(done));
  }
  void join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<GroupView>)> done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->join_group(std::move(request), std::move(cancel), std::move(done));
  }
  void recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<Tensor>)> done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->recv_chunk(std::move(request), std::move(cancel), std::move(done));
  }
  void end_group(EndGroupRequest request, StatusDone done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status());
    (*worker)->end_group(std::move(request), std::move(done));
  }

 private:
  FindWorker find_;
  ThreadPool& pool_;
};

}  // namespace

Ref<WorkerInterface> make_direct_worker(FindWorker find, ThreadPool* pool) {
  return make_ref<DirectWorker>(std::move(find), pool != nullptr ? *pool : ThreadPool::global());
}

}  // namespace millrace
