#include "millrace/ops/queue/accumulator.h"

#include <algorithm>
#include <utility>

#include "millrace/ops/queue/handle.h"

namespace millrace {

struct Accumulator::Request {
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

Result<bool> Accumulator::apply(int64_t local_step, std::string_view giver,
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
    if (local_step < global_step_) return false;
    if (!giver.empty() && givers_.contains(std::string(giver))) return false;
    MR_TRY(sum_->add(gradient));
    ++count_;
    if (!giver.empty()) givers_.emplace(giver);
    serve(finished);
  }
  finished.tell();
  return true;
}

void Accumulator::take(int64_t required, CancellationToken* cancel, Done done) {
  const Ref<Accumulator> self(this);  // `done` may be the last to hold it
  Line finished;
  {
    MutexLock lock(mu_);
    const Line::Place request =
        taking_.add({.required = required, .done = std::move(done)}, cancel);
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
  MutexLock lock(mu_);
  global_step_ = step;
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
  while (!taking_.empty() && taking_.begin()->required <= count_) {
    Request& request = *taking_.begin();
    Result<AccumulatorGradient> taken = sum_->result(count_);
    request.status = taken.status();
    if (taken.ok()) {
      request.gradient = std::move(*taken);
      sum_->clear();
      count_ = 0;
      givers_.clear();
      ++global_step_;
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
