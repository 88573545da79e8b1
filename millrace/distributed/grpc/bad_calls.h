#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>

#include "millrace/base/mutex.h"
#include "millrace/base/status.h"

namespace millrace {

// Calls that were refused because who called did not show that it may come in, by connection. When
// many came on one, that is logged, once, and their answer is short from then on. Who shows that it
// may come in is heard all the same: connections are shared within a process, and their addresses
// are used again. Thread-safe.
class BadCalls {
 public:
  static constexpr int kMostOfAConnection = 20;
  // So many connections are remembered, the newest ones.
  static constexpr size_t kMostConnections = 4096;

  // Counts a call that was refused with `refusal`; what it is answered: that, or RESOURCE_EXHAUSTED
  // on a connection that has had many. `peer`: the address and port of the other end.
  Status add(const std::string& peer, const Status& refusal);

 private:
  Mutex mu_;
  std::unordered_map<std::string, int> counts_ MR_GUARDED_BY(mu_);
  std::deque<std::string> order_ MR_GUARDED_BY(mu_);  // oldest first
};

}  // namespace millrace
