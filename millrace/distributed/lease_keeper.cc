#include "millrace/distributed/lease_keeper.h"

#include <algorithm>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/distributed/patience.h"

namespace millrace {
namespace {

constexpr size_t kMaxToTell = 4096;

template <class T>
void add_last(std::vector<T>& list, std::vector<T> more) {
  list.insert(list.end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
  if (list.size() > kMaxToTell) {
    list.erase(list.begin(), list.end() - static_cast<int64_t>(kMaxToTell));
  }
}

}  // namespace

LeaseKeeper::LeaseKeeper(Ref<WorkerCache> workers, std::string session, int64_t lease_ms,
                         Ref<Timer> timer)
    : workers_(std::move(workers)),
      session_(std::move(session)),
      lease_ms_(lease_ms),
      timer_(std::move(timer)) {}

int64_t LeaseKeeper::keep(const std::string& task, uint64_t incarnation) {
  Result<Ref<WorkerInterface>> worker = workers_->find(task);
  if (!worker.ok() || !(*worker)->needs_lease()) return 0;
  {
    MutexLock lock(mu_);
    if (stopped_) return lease_ms_;
    Kept& kept = tasks_[task];
    if (kept.worker) return lease_ms_;
    kept.worker = *std::move(worker);
    kept.incarnation = incarnation;
    if (ticket_ == 0) beat_later();
  }
  ask(task);
  return lease_ms_;
}

void LeaseKeeper::stop() {
  MutexLock lock(mu_);
  stopped_ = true;
  if (ticket_ != 0) timer_->remove(ticket_);
  tasks_.clear();
}

void LeaseKeeper::tell_later(const std::string& task, int64_t over_step) {
  MutexLock lock(mu_);
  if (const auto it = tasks_.find(task); it != tasks_.end())
    add_last(it->second.steps, {over_step});
}

void LeaseKeeper::tell_later(const std::string& task, std::string over_graph) {
  MutexLock lock(mu_);
  const auto it = tasks_.find(task);
  if (it != tasks_.end()) add_last(it->second.graphs, {std::move(over_graph)});
}

std::vector<int64_t> LeaseKeeper::take_over_steps(const std::string& task) {
  MutexLock lock(mu_);
  const auto it = tasks_.find(task);
  return it == tasks_.end() ? std::vector<int64_t>() : std::exchange(it->second.steps, {});
}

void LeaseKeeper::beat_later() {
  ticket_ = timer_->schedule(beat_ms_for(lease_ms_) * 1'000'000,
                             [self = Ref<LeaseKeeper>(this)] { self->beat(); });
}

void LeaseKeeper::beat() {
  std::vector<std::string> tasks;
  {
    MutexLock lock(mu_);
    if (stopped_) return;
    for (const auto& [task, kept] : tasks_) tasks.push_back(task);
    beat_later();
  }
  for (const std::string& task : tasks) ask(task);
}

void LeaseKeeper::ask(const std::string& task) {
  KeepSessionRequest request;
  Ref<WorkerInterface> worker;
  {
    MutexLock lock(mu_);
    const auto it = tasks_.find(task);
    // One call at a time: a task that does not answer is not asked ever more.
    if (it == tasks_.end() || it->second.asked || it->second.over) return;
    Kept& kept = it->second;
    kept.asked = true;
    worker = kept.worker;
    request.incarnation = kept.incarnation;
    request.over_steps = std::move(kept.steps);
    request.over_graphs = std::move(kept.graphs);
    kept.steps.clear();
    kept.graphs.clear();
  }
  request.session = session_;
  request.lease_ms = lease_ms_;
  worker->keep_session(
      request, [self = Ref<LeaseKeeper>(this), task, request](const Status& status) mutable {
        self->answered(task, std::move(request), status);
      });
}

void LeaseKeeper::answered(const std::string& task, KeepSessionRequest said, const Status& status) {
  workers_->report(task, status);
  if (!status.ok()) MR_LOG(kWarning, "session ", session_, " is not kept by ", task, ": ", status);
  MutexLock lock(mu_);
  const auto it = tasks_.find(task);
  if (it == tasks_.end()) return;
  it->second.asked = false;
  it->second.over = status.code() == Code::kAborted;
  if (status.ok()) return;
  add_last(it->second.steps, std::move(said.over_steps));
  add_last(it->second.graphs, std::move(said.over_graphs));
}

}  // namespace millrace
