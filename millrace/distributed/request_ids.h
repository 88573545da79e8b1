#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "millrace/base/mutex.h"
#include "millrace/base/status.h"

namespace millrace {

// The last requests of one client, by the numbers that it gave them: clients that lost an answer
// send the request again, with the same number. Number 0 stands for none. Thread-safe.
class RequestIds {
 public:
  // Keeps the last `capacity` numbers.
  explicit RequestIds(size_t capacity = 1024) : capacity_(capacity) {}

  // Says that the request arrived; `digest` is of all its bytes. Nothing: for the first time, and
  // finish() follows. A text: it was finished with this answer. ABORTED: it is under way or has no
  // answer that could be repeated. INVALID_ARGUMENT: the number was another request's.
  Result<std::optional<std::string>> begin(int64_t id, uint64_t digest);
  // Ends what begin() began. An error forgets the request, so that it may be tried again.
  void finish(int64_t id, const Result<std::string>& answer);

 private:
  struct Request {
    uint64_t digest;
    std::optional<std::string> answer;
  };
  const size_t capacity_;
  Mutex mu_;
  std::deque<int64_t> order_ MR_GUARDED_BY(mu_);  // oldest first
  std::unordered_map<int64_t, Request> requests_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
