#include "millrace/kernel/step.h"

#include <algorithm>

#include "millrace/base/str_cat.h"
#include "millrace/base/thread_pool.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/function_runner.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/kernel/trace.h"

namespace millrace {

Step::Step(int64_t step_id) : id(step_id), pool(&ThreadPool::global()) {}

Step::~Step() = default;

Ref<Step> Step::make_shared(int64_t step_id, Ref<CancellationToken> parent) {
  Ref<Step> step = make_ref<Step>(step_id);
  step->rendezvous = make_local_rendezvous();
  step->cancel =
      parent ? CancellationToken::make_child(std::move(parent)) : make_ref<CancellationToken>();
  return step;
}

void Step::hold_feeds(std::vector<Tensor> values) {
  held_feeds_ = std::move(values);
  feeds = held_feeds_;
}

std::string Step::container() const { return str_cat("__per_step_", id); }

Stream* Step::stream(Device& device) const { return device.stream(); }

void Step::fail(const Status& status) {
  {
    MutexLock lock(mu_);
    if (!error_.ok()) return;
    error_ = status;
  }
  if (rendezvous) rendezvous->abort(status);
  if (cancel) cancel->cancel(status);
}

void Step::fail_at_end(const Status& status) {
  MutexLock lock(mu_);
  if (late_error_.ok()) late_error_ = status;
}

void Step::begin(int parts, Done done) {
  if (!cancel) cancel = make_ref<CancellationToken>();
  {
    MutexLock lock(mu_);
    parts_ = parts + 1;
    done_ = std::move(done);
  }
  end_part();
}

void Step::end_part() {
  const Ref<Step> self(this);  // `done` may drop the last one but this
  Done done;
  {
    MutexLock lock(mu_);
    if (--parts_ > 0) return;
    done = std::move(done_);
  }
  if (done) done(*this);
  done = nullptr;
  MutexLock lock(mu_);
  over_ = true;
  changed_.notify_all();
}

bool Step::capped() const { return max_threads < pool->size() + 1; }

void Step::schedule(UniqueFunction<void()> task) {
  if (!capped()) return pool->schedule(std::move(task));
  {
    MutexLock lock(mu_);
    if (busy_.load(std::memory_order_relaxed) >= max_threads) {
      waiting_.push_back(std::move(task));
      return;
    }
    busy_.fetch_add(1, std::memory_order_relaxed);
  }
  work(std::move(task));
}

void Step::work(UniqueFunction<void()> task) {
  pool->schedule([self = Ref<Step>(this), task = std::move(task)]() mutable {
    do {
      task();
    } while (self->next_task(task));
  });
}

bool Step::next_task(UniqueFunction<void()>& task) {
  task = nullptr;
  MutexLock lock(mu_);
  if (waiting_.empty()) {
    busy_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  task = std::move(waiting_.back());
  waiting_.pop_back();
  return true;
}

void Step::run_here(FunctionRef<void()> task) {
  if (!capped()) return task();
  {
    MutexLock lock(mu_);
    busy_.fetch_add(1, std::memory_order_relaxed);
  }
  task();
  UniqueFunction<void()> next;
  if (next_task(next)) work(std::move(next));
}

int Step::threads_in_kernel() const {
  const int busy = busy_.load(std::memory_order_relaxed);
  return busy > 1 ? std::max(1, max_threads / busy) : max_threads;
}

bool Step::wait(Deadline until) {
  MutexLock lock(mu_);
  while (!over_) {
    if (!changed_.wait_until(mu_, until) && !over_) return false;
  }
  return true;
}

Status Step::error() const {
  MutexLock lock(mu_);
  return error_;
}

Status Step::status() const {
  MutexLock lock(mu_);
  return error_.ok() ? late_error_ : error_;
}

}  // namespace millrace
