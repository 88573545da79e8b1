#include "millrace/distributed/remote_partial_run.h"

#include "millrace/distributed/partial_keys.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/repeated_run.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

bool has(const std::vector<int>& positions, int position) {
  for (const int other : positions) {
    if (other == position) return true;
  }
  return false;
}

}  // namespace

RemotePartialRun::RemotePartialRun(std::vector<Place> places, Context context)
    : places_(std::move(places)), context_(std::move(context)) {
  MutexLock lock(mu_);
  values_.resize(context_.step->fetches.size());
}

int RemotePartialRun::num_fetches() const {
  size_t count = 0;
  for (const Place& place : places_) count += place.fetches.size();
  return static_cast<int>(count);
}

void RemotePartialRun::start() {
  for (const Place& place : places_) {
    for (const int position : place.fetches) ask(place, position, 0, ok_status());
  }
}

void RemotePartialRun::ask(const Place& place, int position, int repeated, Status lost) {
  place.worker->recv_tensor(
      {context_.step_id, fetch_key(position)}, context_.cancel,
      [self = Ref<RemotePartialRun>(this), &place, position, repeated, lost = std::move(lost)](
          Status status, Value value) {
        const Status& first = repeated > 0 ? lost : status;
        if (self->again(place, status, repeated, [self, &place, position, repeated, first] {
              self->ask(place, position, repeated + 1, first);
            })) {
          return;
        }
        // It was handed out, or the task knows nothing of the step any more.
        if (status.code() == Code::kAborted) status = first;
        self->fetched(position, status, std::move(value));
      });
}

bool RemotePartialRun::again(const Place& place, const Status& status, int repeated,
                             UniqueFunction<void()> call) {
  const bool lost = status.code() == Code::kUnavailable && place.worker->needs_lease();
  if (!lost || repeated >= kMaxRepeats || context_.cancel->cancelled()) return false;
  context_.timer->schedule(repeat_after_ms(lost_after_ms(), repeated) * 1'000'000, std::move(call));
  return true;
}

void RemotePartialRun::fetched(int position, const Status& status, Value value) {
  if (status.ok()) {
    MutexLock lock(mu_);
    values_[static_cast<size_t>(position)] = std::move(value);
    changed_.notify_all();
  } else {
    context_.fail(status);
  }
  context_.step->end_part();
}

Status RemotePartialRun::feed(int position, Tensor value) {
  {
    MutexLock lock(mu_);
    while (context_.cancel->cancelled() && !over_) changed_.wait(mu_);
    if (over_) MR_TRY(context_.step->error());
    const auto p = static_cast<size_t>(position);
    if (fed_.size() <= p) fed_.resize(p + 1);
    if (fed_[p]) return invalid_argument("feed ", position, " of this partial run was fed already");
    fed_[p] = true;
  }
  const Value given = Value::of(std::move(value));
  for (const Place& place : places_) {
    if (!has(place.feeds, position)) continue;
    give_tensor_surely(place.worker, context_.timer, context_.step_id, feed_key(position), given,
                       context_.cancel, [self = Ref<RemotePartialRun>(this)](const Status& status) {
                         if (!status.ok()) self->context_.fail(status);
                       });
  }
  return ok_status();
}

Result<Tensor> RemotePartialRun::fetch(int position, Deadline deadline) {
  const auto p = static_cast<size_t>(position);
  MutexLock lock(mu_);
  while (values_[p].empty()) {
    if (over_) {
      MR_TRY(context_.step->error());
      return internal("fetch ", position, " was never computed");
    }
    if (wait_ == 0) wait_ = context_.watch->begin(context_.waiting);
    if (changed_.wait_until(mu_, deadline) || over_ || !values_[p].empty()) continue;
    return deadline_exceeded("waited in vain for fetch ", position,
                             " of a partial run; it waits for ",
                             str_join(context_.step->rendezvous->waiting(), ", "));
  }
  if (!values_[p].dead()) return values_[p].tensor;
  return invalid_argument("the tensor fetched at position ", position,
                          " was not valid: it lies on a branch that was not taken");
}

void RemotePartialRun::end() {
  MutexLock lock(mu_);
  context_.watch->end(wait_);
  over_ = true;
  changed_.notify_all();
}

}  // namespace millrace
