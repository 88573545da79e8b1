#include "millrace/ops/queue/accumulator.h"

#include <algorithm>
#include <utility>

#include "millrace/ops/queue/handle.h"

namespace millrace {

struct Accumulator::Request {
  int64_t era = 0;
  int64_t step = 0;  // looked at in eras
  int64_t required = 0;
  Done done;
  Status status{};
  AccumulatorGradient gradient{};

  void tell() { done(std::move(status), std::move(gradient)); }
};

Accumulator::Accumulator(std::string_view container, std::string_view name, AccumulatorSpec spec)
    : spec_(std::move(spec)),
      name_(name),
      handle_(make_handle_cell(container, name)),
      sum_(make_gradient_sum(spec_)) {}

Accumulator::~Accumulator() = default;

void Accumulator::begin(int64_t era, int64_t step) {
  const Ref<Accumulator> self(this);  // one that is told may be the last to hold it
  Line finished;
  {
    MutexLock lock(mu_);
    if (era != 0 && era == era_) return;
    era_ = era;
    global_step_ = step;
    sum_->clear();
    count_ = 0;
    givers_.clear();
    taken_ = {};
    while (!taking_.empty()) {
      taking_.begin()->status = aborted("accumulator '", name_, "' begins anew at step ", step);
      taking_.finish(taking_.begin(), finished);
    }
  }
  finished.tell();
}

Result<bool> Accumulator::apply(int64_t era, int64_t local_step, std::string_view giver,
                                const AccumulatorGradient& gradient) {
  if (gradient.values.dtype() != spec_.dtype) {
    return invalid_argument("accumulator '", name_, "' holds gradients of type ", spec_.dtype,
                            ", got ", gradient.values.dtype());
  }
  if (gradient.indices.valid() != spec_.sparse) {
    return invalid_argument("accumulator '", name_, "' holds ", spec_.sparse ? "sparse" : "dense",
                            " gradients, got a ", spec_.sparse ? "dense" : "sparse", " one");
  }
  Line finished;
  {
    MutexLock lock(mu_);
    if ((era != 0 && era != era_) || local_step < global_step_) return false;
    if (!giver.empty() && givers_.contains(std::string(giver))) return false;
    MR_TRY(sum_->add(gradient));
    ++count_;
    taken_ = {};  // the step before is over, or its gradient would not be here
    if (!giver.empty()) givers_.emplace(giver);
    serve(finished);
  }
  finished.tell();
  return true;
}

Status Accumulator::check_step(int64_t era, int64_t step) const {
  if (era == 0) return ok_status();
  if (era != era_) {
    return aborted("accumulator '", name_, "' is in another era: the training was set back");
  }
  const bool kept = taken_.values.valid() && step == global_step_ - 1;
  if (step == global_step_ || kept) return ok_status();
  return aborted("accumulator '", name_, "' is at step ", global_step_, ", not ", step);
}

void Accumulator::take(int64_t era, int64_t step, int64_t required, CancellationToken* cancel,
                       Done done) {
  const Ref<Accumulator> self(this);  // `done` may be the last to hold it
  Line finished;
  {
    MutexLock lock(mu_);
    const Line::Place request = taking_.add(
        {.era = era, .step = step, .required = required, .done = std::move(done)}, cancel);
    if (request->cancelled()) {
      drop(request, finished);
    } else {
      serve(finished);
    }
    if (!taking_.watch(request, [this, request] { abandon(request); })) drop(request, finished);
  }
  finished.tell();
}

void Accumulator::set_global_step(int64_t step) {
  const Ref<Accumulator> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    global_step_ = step;
    taken_ = {};
    serve(finished);
  }
  finished.tell();
}

int64_t Accumulator::count() const {
  MutexLock lock(mu_);
  return count_;
}

std::string Accumulator::describe() const {
  MutexLock lock(mu_);
  return str_cat("Accumulator ", spec_.dtype, " ", spec_.shape, " ", count_, " gradients, step ",
                 global_step_);
}

void Accumulator::serve(Line& finished) {
  while (!taking_.empty()) {
    Request& request = *taking_.begin();
    request.status = check_step(request.era, request.step);
    if (request.status.ok()) {
      // What was taken for a step already, or what came by now.
      const bool again = request.era != 0 && request.step != global_step_;
      if (!again && request.required > count_) return;
      Result<AccumulatorGradient> taken =
          again ? Result<AccumulatorGradient>(taken_) : sum_->result(count_);
      request.status = taken.status();
      if (taken.ok()) request.gradient = *std::move(taken);
      if (!again && request.status.ok()) {
        if (request.era != 0) taken_ = request.gradient;
        sum_->clear();
        count_ = 0;
        givers_.clear();
        ++global_step_;
      }
    }
    taking_.finish(taking_.begin(), finished);
  }
}

void Accumulator::drop(Line::Place request, Line& finished) {
  request->status = cancelled("TakeGrad operation was cancelled");
  taking_.finish(request, finished);
  serve(finished);
}

void Accumulator::abandon(Line::Place request) {
  // A request that somebody else finished has not been told yet: it waits for this call to end.
  const Ref<Accumulator> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    if (!request->waiting()) return;
    drop(request, finished);
  }
  finished.tell();
}

}  // namespace millrace
