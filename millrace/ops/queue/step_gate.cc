#include "millrace/ops/queue/step_gate.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "millrace/base/str_cat.h"

namespace millrace {

struct StepGate::Waiter {
  int64_t era = 0;
  int64_t local_step = 0;
  Done done;
  Status status{};
  int64_t reached_era = 0;  // what it goes on with
  int64_t step = 0;

  void tell() { done(std::move(status), reached_era, step); }
};

StepGate::StepGate(std::string_view name) : name_(name) {}

StepGate::~StepGate() = default;

void StepGate::reset(int64_t era, int64_t step) {
  const Ref<StepGate> self(this);  // a waiter that is told may be the last to hold it
  Line finished;
  {
    MutexLock lock(mu_);
    if (era == 0 || era != era_) {
      admissions_ = 0;
      left_ = 0;
      closed_.clear();
      set_ = false;
    }
    era_ = era;
    move_to(step, finished);
  }
  finished.tell();
}

void StepGate::open(int64_t step) {
  const Ref<StepGate> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    move_to(step, finished);
  }
  finished.tell();
}

void StepGate::move_to(int64_t step, Line& finished) {
  step_ = set_ ? std::max(step_, step) : step;
  set_ = true;
  serve(finished);
}

void StepGate::admit(int64_t step, int64_t count) {
  const Ref<StepGate> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    admitted_step_ = step;
    admissions_ = count;
    serve(finished);
  }
  finished.tell();
}

void StepGate::leave(int64_t replicas, int64_t required) {
  int64_t remaining = 0;
  {
    MutexLock lock(mu_);
    remaining = replicas - ++left_;
  }
  if (remaining >= required) return;
  close(str_cat("a step needs the gradients of ", required, " replicas, and only ",
                std::max<int64_t>(remaining, 0), " of ", replicas, " go on"));
}

void StepGate::close(std::string_view reason) {
  const Ref<StepGate> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    if (closed_.empty()) closed_ = reason;
    serve(finished);
  }
  finished.tell();
}

void StepGate::wait(int64_t era, int64_t local_step, CancellationToken* cancel, Done done) {
  const Ref<StepGate> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    const Line::Place waiter =
        waiting_.add({.era = era, .local_step = local_step, .done = std::move(done)}, cancel);
    serve(finished);
    if (!waiting_.watch(waiter, [this, waiter] { abandon(waiter); })) drop(waiter, finished);
  }
  finished.tell();
}

uint64_t StepGate::join(const std::string& replica) {
  MutexLock lock(mu_);
  replicas_.erase(replica);
  int64_t slowest = set_ ? step_ : 0;
  if (!replicas_.empty()) slowest = std::numeric_limits<int64_t>::max();
  for (const auto& [name, other] : replicas_) slowest = std::min(slowest, other.steps);
  replicas_[replica] = {++last_number_, slowest};
  return last_number_;
}

void StepGate::follow_slowest(Line& finished) {
  if (replicas_.empty()) return;
  set_ = true;
  step_ = std::numeric_limits<int64_t>::max();
  for (const auto& [name, replica] : replicas_) step_ = std::min(step_, replica.steps);
  serve(finished);
}

void StepGate::pace(const std::string& replica, uint64_t number, int64_t staleness,
                    CancellationToken* cancel, Done done) {
  const Ref<StepGate> self(this);
  Line finished;
  int64_t steps = -1;
  {
    MutexLock lock(mu_);
    const auto it = replicas_.find(replica);
    if (it != replicas_.end() && it->second.number == number) {
      steps = ++it->second.steps;
      follow_slowest(finished);
    }
  }
  finished.tell();
  if (steps < 0) {
    return done(aborted("replica '", replica, "' of step gate '", name_,
                        "' has gone, or is another session's by now"),
                0, 0);
  }
  wait(/*era=*/0, steps - staleness - 1, cancel,
       [steps, done = std::move(done)](Status status, int64_t era, int64_t) mutable {
         done(std::move(status), era, steps);
       });
}

void StepGate::withdraw(const std::string& replica, uint64_t number) {
  const Ref<StepGate> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    const auto it = replicas_.find(replica);
    if (it == replicas_.end() || it->second.number != number) return;
    replicas_.erase(it);
    follow_slowest(finished);
  }
  finished.tell();
}

std::string StepGate::describe() const {
  MutexLock lock(mu_);
  return str_cat("StepGate at step ", set_ ? str_cat(step_) : "none", ", ", waiting_.size(),
                 " wait", closed_.empty() ? "" : ", closed");
}

bool StepGate::passes(Waiter& waiter) {
  const int64_t local_step = waiter.local_step;
  waiter.reached_era = era_;
  const bool same_era = waiter.era == 0 || waiter.era == era_;
  if (same_era && admissions_ > 0 && local_step == admitted_step_) {
    --admissions_;
    waiter.step = local_step;
    return true;
  }
  waiter.step = step_;
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  const bool far_ahead = waiter.era == 0 && step_ != kLast && local_step > step_ + 1;
  return set_ && (!same_era || step_ > local_step || far_ahead);
}

void StepGate::serve(Line& finished) {
  for (Line::Place waiter = waiting_.begin(); waiter != waiting_.end();) {
    const Line::Place next = std::next(waiter);
    if (passes(*waiter)) {
      waiting_.finish(waiter, finished);
    } else if (!closed_.empty()) {
      waiter->status = out_of_range("step gate '", name_, "' is closed: ", closed_);
      waiting_.finish(waiter, finished);
    }
    waiter = next;
  }
}

void StepGate::drop(Line::Place waiter, Line& finished) {
  waiter->status = cancelled("the wait for a step was cancelled");
  waiting_.finish(waiter, finished);
}

void StepGate::abandon(Line::Place waiter) {
  // A waiter that somebody else finished has not been told yet: it waits for this call to end.
  const Ref<StepGate> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    if (!waiter->waiting()) return;
    drop(waiter, finished);
  }
  finished.tell();
}

}  // namespace millrace
