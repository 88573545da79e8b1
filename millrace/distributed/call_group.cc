#include "millrace/distributed/call_group.h"

#include <algorithm>

namespace millrace {

void CallGroup::expect(const std::string& task) {
  MutexLock lock(mu_);
  waiting_.push_back(task);
}

void CallGroup::answer(const std::string& task, Status status) {
  UniqueFunction<void(Status)> done;
  Status error;
  {
    MutexLock lock(mu_);
    auto it = std::find(waiting_.begin(), waiting_.end(), task);
    MR_CHECK(it != waiting_.end());
    waiting_.erase(it);
    if (error_.ok()) error_ = std::move(status);
    if (!waiting_.empty()) return;
    changed_.notify_all();
    if (!done_) return;
    done = std::move(done_);
    if (ticket_ != 0) timer_->remove(ticket_);
    error = error_;
  }
  done(std::move(error));
}

void CallGroup::then(Ref<Timer> timer, int64_t timeout_ms, UniqueFunction<void(Status)> done) {
  Status error;
  {
    MutexLock lock(mu_);
    if (!waiting_.empty()) {
      done_ = std::move(done);
      timer_ = std::move(timer);
      ticket_ = timer_->schedule(timeout_ms * 1'000'000, [self = Ref<CallGroup>(this), timeout_ms] {
        UniqueFunction<void(Status)> waiting;
        Status expired;
        {
          MutexLock inner(self->mu_);
          if (!self->done_) return;
          waiting = std::move(self->done_);
          expired = self->late(timeout_ms);
        }
        waiting(std::move(expired));
      });
      return;
    }
    error = error_;
  }
  done(std::move(error));
}

Status CallGroup::late(int64_t timeout_ms) const {
  return deadline_exceeded(what_, ": no answer in ", timeout_ms, " ms from ",
                           str_join(waiting_, ", "));
}

Status CallGroup::wait(int64_t timeout_ms) {
  Deadline deadline = Deadline::after_millis(timeout_ms);
  MutexLock lock(mu_);
  while (!waiting_.empty()) {
    if (changed_.wait_until(mu_, deadline) || waiting_.empty()) continue;
    return late(timeout_ms);
  }
  return error_;
}

}  // namespace millrace
