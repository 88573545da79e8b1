#include "millrace/distributed/repeated_run.h"

#include <utility>

#include "millrace/base/mutex.h"
#include "millrace/distributed/patience.h"

namespace millrace {
namespace {

struct RepeatedRun : RefCounted {
  Ref<WorkerInterface> worker;
  Ref<Timer> timer;
  RunGraphRequest request;
  Ref<CancellationToken> cancel;  // may be null

  Mutex mu;
  UniqueFunction<void(Status, RunGraphResponse)> done MR_GUARDED_BY(mu);  // empty: it is over
  int repeated MR_GUARDED_BY(mu) = 0;
  Status lost MR_GUARDED_BY(mu);  // how the first connection was
  int64_t lost_ns MR_GUARDED_BY(mu) = 0;
  // Between two calls: what ends the pause.
  bool pausing MR_GUARDED_BY(mu) = false;
  uint64_t timer_ticket MR_GUARDED_BY(mu) = 0;
  uint64_t cancel_ticket MR_GUARDED_BY(mu) = 0;

  void call() {
    worker->run_graph(request, cancel,
                      [self = Ref<RepeatedRun>(this)](Status status, RunGraphResponse response) {
                        self->answered(std::move(status), std::move(response));
                      });
  }

  // Whether the task still goes on for a caller who was lost then. To connect may have taken long.
  bool wanted() const MR_REQUIRES(mu) {
    const int64_t bear_ns = bear_loss_ms_for(lost_after_ms()) * 1'000'000;
    return lost.ok() || timer->now_ns() - lost_ns <= bear_ns;
  }

  void answered(Status status, RunGraphResponse response) {
    {
      MutexLock lock(mu);
      if (response.lost && repeated < kMaxRepeats && wanted()) {
        if (lost.ok()) {
          lost = std::move(status);
          lost_ns = timer->now_ns();
        }
        lock.unlock();
        return pause();
      }
      // It knows nothing of the run: another process has the task's name.
      if (!lost.ok() && (response.lost || status.code() == Code::kAborted)) status = lost;
    }
    finish(std::move(status), std::move(response));
  }

  void pause() {
    {
      MutexLock lock(mu);
      pausing = true;
      const int64_t delay_ms = repeat_after_ms(lost_after_ms(), repeated++);
      timer_ticket = timer->schedule(delay_ms * 1'000'000,
                                     [self = Ref<RepeatedRun>(this)] { self->resume(); });
    }
    if (!cancel) return;
    const uint64_t ticket = cancel->on_cancel([self = Ref<RepeatedRun>(this)] { self->stop(); });
    if (ticket == 0) return stop();
    {
      MutexLock lock(mu);
      if (pausing) {
        cancel_ticket = ticket;
        return;
      }
    }
    cancel->remove(ticket);
  }

  void resume() {
    uint64_t ticket;
    {
      MutexLock lock(mu);
      if (!pausing) return;
      pausing = false;
      ticket = std::exchange(cancel_ticket, 0);
    }
    if (ticket != 0) cancel->remove(ticket);
    call();
  }

  void stop() {
    uint64_t ticket;
    {
      MutexLock lock(mu);
      if (!pausing) return;
      pausing = false;
      cancel_ticket = 0;
      ticket = timer_ticket;
    }
    timer->remove(ticket);
    finish(cancel->status(), RunGraphResponse{.derived = true});
  }

  void finish(Status status, RunGraphResponse response) {
    UniqueFunction<void(Status, RunGraphResponse)> callback;
    {
      MutexLock lock(mu);
      callback = std::move(done);
    }
    callback(std::move(status), std::move(response));
  }
};

void give(const Ref<WorkerInterface>& worker, const Ref<Timer>& timer, int64_t step_id,
          const std::string& key, const Value& value, const Ref<CancellationToken>& cancel,
          int repeated, WorkerInterface::StatusDone done) {
  worker->give_tensor(step_id, key, value,
                      [worker, timer, step_id, key, value, cancel, repeated,
                       done = std::move(done)](Status status) mutable {
                        const bool lost =
                            status.code() == Code::kUnavailable && worker->needs_lease();
                        if (!lost || repeated >= kMaxRepeats || cancel->cancelled()) {
                          return done(std::move(status));
                        }
                        timer->schedule(repeat_after_ms(lost_after_ms(), repeated) * 1'000'000,
                                        [worker, timer, step_id, key, value, cancel, repeated,
                                         done = std::move(done)]() mutable {
                                          give(worker, timer, step_id, key, value, cancel,
                                               repeated + 1, std::move(done));
                                        });
                      });
}

}  // namespace

void give_tensor_surely(const Ref<WorkerInterface>& worker, const Ref<Timer>& timer,
                        int64_t step_id, const std::string& key, const Value& value,
                        const Ref<CancellationToken>& cancel, WorkerInterface::StatusDone done) {
  give(worker, timer, step_id, key, value, cancel, 0, std::move(done));
}

void run_graph_surely(Ref<WorkerInterface> worker, Ref<Timer> timer, RunGraphRequest request,
                      Ref<CancellationToken> cancel,
                      UniqueFunction<void(Status, RunGraphResponse)> done) {
  if (!worker->needs_lease()) {
    return worker->run_graph(std::move(request), std::move(cancel), std::move(done));
  }
  const Ref<RepeatedRun> run = make_ref<RepeatedRun>();
  run->worker = std::move(worker);
  run->timer = std::move(timer);
  run->request = std::move(request);
  run->cancel = std::move(cancel);
  {
    MutexLock lock(run->mu);
    run->done = std::move(done);
  }
  run->call();
}

}  // namespace millrace
