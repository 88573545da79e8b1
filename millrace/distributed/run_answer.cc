#include "millrace/distributed/run_answer.h"

namespace millrace {
namespace {

// Larger answers may be variables' values, which a reference kept here would have copied at their
// next update.
constexpr size_t kRememberedBytes = size_t{64} << 10;

size_t bytes_of(const RunGraphResponse& response) {
  size_t bytes = response.events.size() * sizeof(TraceEvent);
  for (const Tensor& fetch : response.fetches) bytes += fetch.bytes();
  for (const Value& sent : response.sent) bytes += sent.tensor.bytes();
  return bytes;
}

}  // namespace

void RunAnswer::Asker::answer(Status status, RunGraphResponse response) {
  if (ticket != 0) cancel->remove(ticket);
  done(std::move(status), std::move(response));
}

void RunAnswer::ask(Ref<CancellationToken> cancel, Done done) {
  const Ref<Asker> asker = make_ref<Asker>();
  asker->done = std::move(done);
  Ref<Asker> before;
  bool finished;
  Status status;
  RunGraphResponse response;
  {
    MutexLock lock(mu_);
    asked_ = true;
    finished = finished_;
    if (finished) {
      status = status_;
      response = response_;
      forget_if_large();
    } else {
      before = std::exchange(asker_, asker);
      stop_waiting();
    }
  }
  if (finished) return asker->answer(std::move(status), std::move(response));
  if (before) before->answer(aborted("the same run was asked for again"), RunGraphResponse());
  if (!cancel) return;
  // The callback may come before the ticket is known; then it is of no use to take it back.
  const uint64_t ticket = cancel->on_cancel([self = Ref<RunAnswer>(this), asker, token = cancel] {
    self->given_up(asker, token->status());
  });
  if (ticket == 0) return given_up(asker, cancel->status());
  bool over;
  {
    MutexLock lock(mu_);
    over = asker_ != asker;
    if (!over) {
      asker->cancel = cancel;
      asker->ticket = ticket;
    }
  }
  if (over) cancel->remove(ticket);
}

void RunAnswer::forget_if_large() {
  if (bytes_of(response_) <= kRememberedBytes) return;
  response_ = {};
  status_ = aborted("the run was done once, and its answer was lost with its connection");
}

void RunAnswer::stop_waiting() {
  if (ticket_ != 0) timer_->remove(ticket_);
  ticket_ = 0;
}

void RunAnswer::given_up(const Ref<Asker>& asker, const Status& reason) {
  if (reason.code() != Code::kUnavailable) {
    {
      MutexLock lock(mu_);
      if (asker_ != asker) return;
    }
    return token_->cancel(reason);
  }
  {
    MutexLock lock(mu_);
    if (asker_ != asker) return;
    asker_ = nullptr;
    ticket_ = timer_->schedule(patience_ns_, [self = Ref<RunAnswer>(this), reason] {
      {
        MutexLock inner(self->mu_);
        if (self->finished_ || self->asker_) return;
        self->ticket_ = 0;
      }
      self->token_->cancel(reason);
    });
  }
  // Nobody hears it; the transport lets go of the call.
  asker->answer(reason, RunGraphResponse{.derived = true});
}

void RunAnswer::finish(Status status, RunGraphResponse response) {
  Ref<Asker> asker;
  {
    MutexLock lock(mu_);
    finished_ = true;
    stop_waiting();
    asker = std::move(asker_);
    asker_ = nullptr;
    status_ = status;
    response_ = response;
    if (asked_) forget_if_large();
  }
  if (asker) asker->answer(std::move(status), std::move(response));
}

}  // namespace millrace
