#include "millrace/distributed/grpc/bad_calls.h"

#include "millrace/base/log.h"

namespace millrace {

Status BadCalls::add(const std::string& peer, const Status& refusal) {
  MutexLock lock(mu_);
  const auto [it, fresh] = counts_.try_emplace(peer, 0);
  int& count = it->second;
  if (count < kMostOfAConnection)
    ++count;
  else
    return resource_exhausted(kMostOfAConnection, " calls of this connection were refused before");
  if (count == kMostOfAConnection) {
    MR_LOG(kWarning, count, " calls from ", peer, " were refused, the last because ",
           refusal.message());
  }
  if (fresh) {
    order_.push_back(peer);
    if (order_.size() > kMostConnections) {
      counts_.erase(order_.front());
      order_.pop_front();
    }
  }
  return refusal;
}

}  // namespace millrace
