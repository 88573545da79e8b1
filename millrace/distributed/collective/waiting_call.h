#pragma once

#include <atomic>
#include <utility>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/ref.h"

namespace millrace {

// A call of a peer that waits here for its answer, until then or until its caller gives up: one of
// the two happens, once. Thread-safe.
template <class... Answer>
class WaitingCall : public RefCounted {
 public:
  using Done = UniqueFunction<void(Answer...)>;

  WaitingCall(Ref<CancellationToken> cancel, Done done)
      : cancel_(std::move(cancel)), done_(std::move(done)) {}

  // Calls `given_up` when the caller has given up before the answer, perhaps at once; it has to
  // call answer_taken(). No lock may be held that it takes.
  void watch(UniqueFunction<void(const Status& reason)> given_up) {
    if (!cancel_) return;
    const Ref<GivenUp> told = make_ref<GivenUp>();  // a token that has fallen keeps nothing
    told->call = std::move(given_up);
    const uint64_t ticket = cancel_->on_cancel([self = Ref<WaitingCall>(this), told] {
      if (self->claim()) told->call(self->cancel_->status());
    });
    if (ticket == 0) {
      if (claim()) told->call(cancel_->status());
      return;
    }
    ticket_ = ticket;
    if (answered_) stop_watching();
  }

  // Answers, unless the caller has given up. No lock may be held.
  void answer(Answer... answer) {
    if (take()) answer_taken(std::move(answer)...);
  }
  // The same in two steps: true for the one who is to answer.
  bool take() {
    if (!claim()) return false;
    answered_ = true;
    stop_watching();
    return true;
  }
  void answer_taken(Answer... answer) { done_(std::move(answer)...); }

 private:
  struct GivenUp : RefCounted {
    UniqueFunction<void(const Status&)> call;
  };

  bool claim() { return !claimed_.exchange(true); }
  void stop_watching() {
    if (const uint64_t ticket = ticket_.exchange(0); ticket != 0) cancel_->remove(ticket);
  }

  const Ref<CancellationToken> cancel_;
  Done done_;
  std::atomic<bool> claimed_{false};
  std::atomic<bool> answered_{false};
  std::atomic<uint64_t> ticket_{0};
};

}  // namespace millrace
