#pragma once

#include <string>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/base/timer.h"

namespace millrace {

// Waits for the answers to one question put to several tasks. Answers that come after wait() gave
// up are ignored. Thread-safe.
class CallGroup : public RefCounted {
 public:
  // `what` names the question in messages: "register_graph".
  explicit CallGroup(std::string what) : what_(std::move(what)) {}

  // Announces a call, before it is made; answer() ends it.
  void expect(const std::string& task);
  void answer(const std::string& task, Status status);
  // The first error, once all have answered. DEADLINE_EXCEEDED names the tasks that have not.
  Status wait(int64_t timeout_ms);
  // What wait() would return, without holding a thread: `done` is called once, when all have
  // answered or time is up by `timer`, perhaps before this returns. Once, and not beside wait().
  void then(Ref<Timer> timer, int64_t timeout_ms, UniqueFunction<void(Status)> done);

 private:
  Status late(int64_t timeout_ms) const MR_REQUIRES(mu_);

  const std::string what_;
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> waiting_ MR_GUARDED_BY(mu_);
  Status error_ MR_GUARDED_BY(mu_);
  UniqueFunction<void(Status)> done_ MR_GUARDED_BY(mu_);  // of then()
  Ref<Timer> timer_ MR_GUARDED_BY(mu_);
  uint64_t ticket_ MR_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
