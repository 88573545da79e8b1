#include "millrace/distributed/call_group.h"

#include <algorithm>

namespace millrace {

void CallGroup::expect(const std::string& task) {
  MutexLock lock(mu_);
  waiting_.push_back(task);
}

void CallGroup::answer(const std::string& task, Status status) {
  MutexLock lock(mu_);
  auto it = std::find(waiting_.begin(), waiting_.end(), task);
  MR_CHECK(it != waiting_.end());
  waiting_.erase(it);
  if (error_.ok()) error_ = std::move(status);
  if (waiting_.empty()) changed_.notify_all();
}

Status CallGroup::wait(int64_t timeout_ms) {
  Deadline deadline = Deadline::after_millis(timeout_ms);
  MutexLock lock(mu_);
  while (!waiting_.empty()) {
    if (changed_.wait_until(mu_, deadline) || waiting_.empty()) continue;
    return deadline_exceeded(what_, ": no answer in ", timeout_ms, " ms from ",
                             str_join(waiting_, ", "));
  }
  return error_;
}

}  // namespace millrace
