#include "millrace/distributed/simulation/simulated_time_testing.h"

#include <algorithm>
#include <memory>

#include "millrace/base/hash.h"

namespace millrace {

SimulatedTime::~SimulatedTime() { clear(); }

uint64_t SimulatedTime::schedule(int64_t delay_ns, UniqueFunction<void()> task) {
  const Moment moment(now_ns_ + std::max<int64_t>(0, delay_ns), ++last_ticket_);
  moments_.emplace(moment.second, moment.first);
  tasks_.emplace(moment, std::move(task));
  return moment.second;
}

bool SimulatedTime::remove(uint64_t ticket) {
  const auto it = moments_.find(ticket);
  if (it == moments_.end()) return false;
  auto task = tasks_.extract(Moment(it->second, ticket));  // ends last: it may come back here
  moments_.erase(it);
  return true;
}

bool SimulatedTime::run_one() {
  while (pool_.run_one()) continue;
  if (tasks_.empty()) return false;
  auto task = tasks_.extract(tasks_.begin());
  moments_.erase(task.key().second);
  now_ns_ = task.key().first;
  note(static_cast<uint64_t>(now_ns_));
  task.mapped()();
  task.mapped() = nullptr;
  while (pool_.run_one()) continue;
  return true;
}

void SimulatedTime::clear() {
  while (pool_.run_one()) continue;
  while (!tasks_.empty()) (void)remove(tasks_.begin()->first.second);
}

uint64_t SimulatedTime::random() {
  state_ = hash_combine(state_, 1);
  return state_;
}

int64_t SimulatedTime::between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low));
}

bool SimulatedTime::chance(double probability) {
  return static_cast<double>(random() >> 11) * 0x1p-53 < probability;
}

void SimulatedTime::note(uint64_t what) { digest_ = hash_combine(digest_, what); }

uint64_t ProcessTimer::schedule(int64_t delay_ns, UniqueFunction<void()> task) {
  if (stopped_) return UINT64_MAX;
  // The ticket is known only once it is scheduled.
  auto ticket = std::make_shared<uint64_t>(0);
  *ticket = time_->schedule(
      delay_ns, [self = Ref<ProcessTimer>(this), ticket, task = std::move(task)]() mutable {
        self->tickets_.erase(*ticket);
        task();
      });
  tickets_.insert(*ticket);
  return *ticket;
}

bool ProcessTimer::remove(uint64_t ticket) {
  tickets_.erase(ticket);
  return time_->remove(ticket);
}

void ProcessTimer::stop() {
  stopped_ = true;
  while (!tickets_.empty()) remove(*tickets_.begin());
}

}  // namespace millrace
