#pragma once

#include <cstdint>
#include <utility>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/worker_interface.h"

namespace millrace {

// What one run of a graph on a task comes to, for who asks: the call that began the run, and, where
// its connection was lost, the same call made again. So the run is done once, however often it is
// asked for. Answers of up to 64 KiB are remembered for as long as this lives, which is as long as
// the step, and larger ones until they were asked for. Thread-safe.
class RunAnswer : public RefCounted {
 public:
  using Done = UniqueFunction<void(Status, RunGraphResponse)>;

  // A run whose caller is lost goes on for `patience_ns`, in case it asks again.
  RunAnswer(Ref<Timer> timer, int64_t patience_ns)
      : timer_(std::move(timer)), patience_ns_(patience_ns) {}

  // Cancelled when the run is to stop: whoever asked last has given up, or was lost (its token's
  // reason is UNAVAILABLE) and did not ask again in time.
  const Ref<CancellationToken>& token() const { return token_; }

  // Answers with what the run came to, now or when it ends; ABORTED where that was too large to be
  // remembered, and when it is asked again meanwhile. `cancel` may be null.
  void ask(Ref<CancellationToken> cancel, Done done);
  // The run is over. Once.
  void finish(Status status, RunGraphResponse response);

 private:
  struct Asker : RefCounted {
    Ref<CancellationToken> cancel;  // null: never gives up
    uint64_t ticket = 0;            // of it
    Done done;
    void answer(Status status, RunGraphResponse response);
  };

  void given_up(const Ref<Asker>& asker, const Status& reason);
  void stop_waiting() MR_REQUIRES(mu_);
  // An answer that somebody got need not be kept whatever its size.
  void forget_if_large() MR_REQUIRES(mu_);

  const Ref<Timer> timer_;
  const int64_t patience_ns_;
  const Ref<CancellationToken> token_ = make_ref<CancellationToken>();

  Mutex mu_;
  Ref<Asker> asker_ MR_GUARDED_BY(mu_);     // null: nobody waits
  uint64_t ticket_ MR_GUARDED_BY(mu_) = 0;  // of the timer, while a lost caller is waited for
  bool asked_ MR_GUARDED_BY(mu_) = false;   // once
  bool finished_ MR_GUARDED_BY(mu_) = false;
  Status status_ MR_GUARDED_BY(mu_);
  RunGraphResponse response_ MR_GUARDED_BY(mu_);
};

// What is told of a run: what it comes to, and what its first call is answered with, where that is
// answered early (RunGraphRequest::early); null otherwise.
struct RunAnswers {
  Ref<RunAnswer> last, early;
};

}  // namespace millrace
