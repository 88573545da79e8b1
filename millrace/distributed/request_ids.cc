#include "millrace/distributed/request_ids.h"

namespace millrace {

Result<std::optional<std::string>> RequestIds::begin(int64_t id, uint64_t digest) {
  if (id == 0) return std::optional<std::string>();
  MutexLock lock(mu_);
  const auto [it, fresh] = requests_.try_emplace(id, Request{digest, std::nullopt});
  if (fresh) {
    order_.push_back(id);
    if (order_.size() > capacity_) {
      requests_.erase(order_.front());
      order_.pop_front();
    }
    return std::optional<std::string>();
  }
  if (it->second.digest != digest) {
    return invalid_argument("expected a request id of its own, got ", id,
                            ", which was another request's");
  }
  if (it->second.answer) return it->second.answer;
  return aborted("the request with id ", id,
                 " arrived a second time; it was run once, and its answer is lost");
}

void RequestIds::finish(int64_t id, const Result<std::string>& answer) {
  if (id == 0) return;
  MutexLock lock(mu_);
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  if (answer.ok()) {
    it->second.answer = *answer;
  } else {
    requests_.erase(it);
    std::erase(order_, id);
  }
}

}  // namespace millrace
