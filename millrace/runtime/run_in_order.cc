// The parallel gear on a device whose kernels only enqueue: what is ready is called by one thread
// at a time, in the plan's order.

#include <algorithm>

#include "millrace/base/thread_pool.h"
#include "millrace/runtime/parallel_run.h"

namespace millrace {

// By place in the plan, then by iteration, then as they came.
bool ParallelRun::later(const Waiting& a, const Waiting& b) {
  if (a.ready.step != b.ready.step) return a.ready.step > b.ready.step;
  if (a.ready.iteration->number != b.ready.iteration->number) {
    return a.ready.iteration->number > b.ready.iteration->number;
  }
  return a.arrival > b.arrival;
}

void ParallelRun::run_in_order(ReadyList ready) {
  Ref<ParallelRun> self(this);
  const bool traced = static_cast<bool>(step_->trace);
  bool first = true;
  while (true) {
    Ready next_step{};
    {
      MutexLock lock(order_mu_);
      for (Ready& step : ready) {
        if (traced) step.scheduled_ns = monotonic_nanos();
        waiting_.push_back({step, arrivals_++});
        std::push_heap(waiting_.begin(), waiting_.end(), later);
      }
      // Whoever is at it takes these too.
      if (first && enqueuing_) return;
      first = false;
      enqueuing_ = !waiting_.empty();
      if (!enqueuing_) return;
      std::pop_heap(waiting_.begin(), waiting_.end(), later);
      next_step = waiting_.back().ready;
      waiting_.pop_back();
    }
    ready.clear();
    if (execute(next_step, ready)) count_finished(ready);
  }
}

// The run is over when the device is: until then its work uses the step and the kernels.
void ParallelRun::end_in_order() {
  // Not on the stream's thread, which must not be held, nor be the last to let go of the device.
  Status status =
      step_->stream(*plan_->device)->then([self = Ref<ParallelRun>(this)](Status reached) mutable {
        ThreadPool* pool = self->step_->pool;
        pool->schedule([self = std::move(self), reached = std::move(reached)] {
          if (!reached.ok()) self->step_->fail(reached);
          self->step_->end_part();
        });
      });
  if (status.ok()) return;
  step_->fail(status);
  step_->end_part();
}

}  // namespace millrace
