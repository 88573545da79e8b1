#include "millrace/data/cursor.h"

#include <algorithm>

#include "millrace/base/thread_pool.h"

namespace millrace::data {

struct Cursor::Request : RefCounted {
  // Exactly one of the two.
  Next next;
  Saved saved;
  Ref<CancellationToken> cancel;
  uint64_t ticket = 0;

  void fail(const Status& status) { next ? next(status) : saved(status); }
  // Once it is out of the line.
  void forget_cancellation() {
    if (cancel) cancel->remove(ticket);
  }
};

Cursor::Cursor(Ref<Dataset> dataset, Ref<Environment> environment, Iteration iteration,
               std::unique_ptr<Iterator> iterator)
    : dataset_(std::move(dataset)),
      environment_(std::move(environment)),
      stages_(std::move(iteration.stages)),
      iterator_(std::move(iterator)) {}

Cursor::~Cursor() = default;

Result<Ref<Cursor>> Cursor::make(Ref<Dataset> dataset, Ref<Environment> environment) {
  Iteration iteration = Iteration::of(*dataset, environment);
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> iterator, dataset->iterate(iteration));
  return Ref<Cursor>(new Cursor(std::move(dataset), std::move(environment), std::move(iteration),
                                std::move(iterator)));
}

void Cursor::next(Ref<CancellationToken> cancel, Next done) {
  Ref<Request> request = make_ref<Request>();
  request->next = std::move(done);
  request->cancel = std::move(cancel);
  submit(std::move(request));
}

void Cursor::save(Ref<CancellationToken> cancel, Saved done) {
  Ref<Request> request = make_ref<Request>();
  request->saved = std::move(done);
  request->cancel = std::move(cancel);
  submit(std::move(request));
}

void Cursor::submit(Ref<Request> request) {
  bool start = false;
  {
    MutexLock lock(mu_);
    line_.push_back(request);
    if (!working_) working_ = start = true;
    if (request->cancel) {
      // The callback cannot run before the lock is free, so the ticket is there when it does.
      request->ticket = request->cancel->on_cancel(
          [self = Ref<Cursor>(this), waiting = request.get()] { self->abandon(*waiting); });
    }
  }
  if (request->cancel && request->ticket == 0) abandon(*request);
  if (start) work(!dataset_->waits());
}

void Cursor::abandon(Request& request) {
  Ref<Request> found;
  {
    MutexLock lock(mu_);
    const auto at = std::find_if(line_.begin(), line_.end(), [&](const Ref<Request>& waiting) {
      return waiting.get() == &request;
    });
    if (at == line_.end()) return;
    found = std::move(*at);
    line_.erase(at);
  }
  found->fail(found->cancel->status());
}

void Cursor::work(bool may_block) {
  for (;;) {
    bool save = false;
    {
      MutexLock lock(mu_);
      if (line_.empty()) {
        working_ = false;
        return;
      }
      save = static_cast<bool>(line_.front()->saved);
    }
    if (!may_block && (save || !(ready_ || iterator_->ready()))) {
      ThreadPool::global().schedule_blocking([self = Ref<Cursor>(this)] { self->work(true); });
      return;
    }
    Result<Ref<SavedState>> state = Status(Code::kUnknown, "not saved");
    if (save) {
      state = write_state();
    } else if (!ready_) {
      ready_.emplace();
      ready_->fill(*iterator_);
    }
    Ref<Request> request;
    {
      // Who is first now may be another than before.
      MutexLock lock(mu_);
      if (line_.empty() || static_cast<bool>(line_.front()->saved) != save) continue;
      request = std::move(line_.front());
      line_.pop_front();
    }
    request->forget_cancellation();
    if (save) {
      request->saved(std::move(state));
      continue;
    }
    Element element;
    bool end = false;
    Status status = ready_->give(element, end);
    ready_.reset();
    if (status.ok() && end) status = out_of_range("End of sequence");
    status.ok() ? request->next(std::move(element)) : request->next(std::move(status));
  }
}

Result<Ref<SavedState>> Cursor::write_state() {
  StateWriter state;
  StateFields fields(state);
  MR_TRY(position(fields));
  return state.finish();
}

Status Cursor::position(StateFields& state) {
  bool ready = ready_.has_value();
  MR_TRY(state.flag(ready));
  if (ready && !ready_) ready_.emplace();
  if (ready) MR_TRY(ready_->fields(state));
  return state.iterator(*iterator_);
}

Status Cursor::restore(const SavedState& saved) {
  StateReader state(saved);
  StateFields fields(state);
  MR_TRY(position(fields));
  return state.finish();
}

void Cursor::stop() {
  environment_->stop();
  std::deque<Ref<Request>> line;
  {
    MutexLock lock(mu_);
    line.swap(line_);
  }
  for (const Ref<Request>& request : line) {
    request->forget_cancellation();
    request->fail(cancelled("the iterator was dropped"));
  }
}

}  // namespace millrace::data
