#include "millrace/distributed/direct_worker.h"

#include "millrace/base/thread_pool.h"
#include "millrace/distributed/forwarding_worker.h"

namespace millrace {
namespace {

class DirectWorker final : public ForwardingWorker {
 public:
  DirectWorker(FindWorker find, ThreadPool& pool) : find_(std::move(find)), pool_(pool) {}

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
  void run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override {
    Result<Ref<Worker>> worker = find_();
    if (!worker.ok()) return done(worker.status(), RunGraphResponse());
    if (request.on_caller) {
      return (*worker)->run_graph(std::move(request), std::move(cancel), std::move(done));
    }
    pool_.schedule([worker = *worker, request = std::move(request), cancel = std::move(cancel),
                    done = std::move(done)]() mutable {
      worker->run_graph(std::move(request), std::move(cancel), std::move(done));
    });
  }
  bool needs_lease() const override { return false; }

 protected:
  Result<Ref<WorkerInterface>> find_worker() const override {
    MR_TRY_ASSIGN(Ref<Worker> worker, find_());
    return Ref<WorkerInterface>(std::move(worker));
  }

 private:
  mutable FindWorker find_;
  ThreadPool& pool_;
};

}  // namespace

Ref<WorkerInterface> make_direct_worker(FindWorker find, ThreadPool* pool) {
  return make_ref<DirectWorker>(std::move(find), pool != nullptr ? *pool : ThreadPool::global());
}

}  // namespace millrace
