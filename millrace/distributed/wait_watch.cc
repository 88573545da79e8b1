#include "millrace/distributed/wait_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace millrace {

uint64_t WaitWatch::begin(Ref<Waiting> waiting) {
  if (first_ms_ <= 0) return 0;
  MutexLock lock(mu_);
  if (stopped_) return 0;
  const uint64_t id = ++last_;
  const Wait& wait = waits_[id] = {std::move(waiting), timer_->now_ns(), first_ms_};
  if (ticket_ == 0) look_at(wait.due_ns());
  return id;
}

void WaitWatch::end(uint64_t wait) {
  Ref<Waiting> dropped;  // after the lock
  MutexLock lock(mu_);
  const auto it = waits_.find(wait);
  if (it == waits_.end()) return;
  dropped = std::move(it->second.waiting);
  waits_.erase(it);
}

void WaitWatch::look_at(int64_t due_ns) {
  ticket_ = timer_->schedule(std::max<int64_t>(0, due_ns - timer_->now_ns()),
                             [self = Ref<WaitWatch>(this)] { self->look(); });
}

void WaitWatch::stop() {
  std::map<uint64_t, Wait> dropped;  // after the lock
  MutexLock lock(mu_);
  stopped_ = true;
  if (ticket_ != 0) timer_->remove(ticket_);
  dropped.swap(waits_);
}

void WaitWatch::look() {
  std::vector<std::pair<Ref<Waiting>, int64_t>> late;
  {
    MutexLock lock(mu_);
    ticket_ = 0;
    if (stopped_) return;
    const int64_t now = timer_->now_ns();
    int64_t next = INT64_MAX;
    for (auto& [id, wait] : waits_) {
      if (wait.due_ns() <= now) {
        late.emplace_back(wait.waiting, (now - wait.began_ns) / 1'000'000);
        while (wait.due_ns() <= now) wait.next_ms *= 2;
      }
      next = std::min(next, wait.due_ns());
    }
    if (next != INT64_MAX) look_at(next);
  }
  for (const auto& [waiting, waited_ms] : late) waiting->tell(waited_ms);
}

}  // namespace millrace
