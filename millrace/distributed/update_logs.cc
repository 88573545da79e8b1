#include "millrace/distributed/update_logs.h"

namespace millrace {

Result<Ref<UpdateLog>> UpdateLogs::begin(UpdateId id, int64_t step_id, int64_t& before) {
  if (id.stream <= 0 || id.number < 0) {
    return invalid_argument("expected a stream of updates above 0 and a number from 0 on, got ",
                            id.stream, " and ", id.number);
  }
  MutexLock lock(mu_);
  const auto [it, is_new] = streams_.try_emplace(id.stream);
  Stream& stream = it->second;
  if (is_new) {
    stream.used = order_.insert(order_.end(), id.stream);
  } else {
    order_.splice(order_.end(), order_, stream.used);
    if (id.number < stream.number) {
      return aborted("update ", id.number, " of stream ", id.stream, " came after update ",
                     stream.number);
    }
    if (stream.running) {
      before = stream.step_id;
      return aborted("update ", stream.number, " of stream ", id.stream,
                     " has not ended yet, as step ", stream.step_id);
    }
  }
  if (is_new || id.number > stream.number) stream.log = make_ref<UpdateLog>();
  stream.number = id.number;
  stream.step_id = step_id;
  stream.running = true;
  Ref<UpdateLog> log = stream.log;
  forget_oldest();
  return log;
}

void UpdateLogs::end(UpdateId id) {
  MutexLock lock(mu_);
  const auto it = streams_.find(id.stream);
  if (it != streams_.end() && it->second.number == id.number) it->second.running = false;
}

void UpdateLogs::forget_oldest() {
  auto oldest = order_.begin();
  while (streams_.size() > kMaxStreams && oldest != order_.end()) {
    const auto it = streams_.find(*oldest);
    if (it->second.running) {
      ++oldest;
      continue;
    }
    streams_.erase(it);
    oldest = order_.erase(oldest);
  }
}

size_t UpdateLogs::num_streams() const {
  MutexLock lock(mu_);
  return streams_.size();
}

}  // namespace millrace
