#include "millrace/ops/queue/queue.h"

#include <algorithm>
#include <utility>

#include "millrace/ops/queue/handle.h"

namespace millrace {

struct Queue::Request {
  enum class Kind : uint8_t { kPut, kTake, kClose };

  Kind kind;
  bool up_to = false;
  int64_t wanted = 0;                    // kTake
  std::vector<QueueElement> elements{};  // kPut: what to put; kTake: what was taken so far
  size_t next = 0;                       // kPut: the first element not put yet
  Status status{};
  Done done;

  void tell() { done(std::move(status), std::move(elements)); }
};

Queue::Queue(std::string_view container, std::string_view name, QueueSpec spec)
    : spec_(std::move(spec)),
      name_(name),
      handle_(make_handle_cell(container, name)),
      store_(make_element_store(spec_)) {}

Queue::~Queue() = default;

void Queue::enqueue(std::vector<QueueElement> elements, CancellationToken* cancel, Done done) {
  if (elements.empty()) return done(ok_status(), {});
  submit({.kind = Request::Kind::kPut, .elements = std::move(elements), .done = std::move(done)},
         cancel);
}

void Queue::dequeue(int64_t n, bool up_to, CancellationToken* cancel, Done done) {
  if (n == 0) return done(ok_status(), {});
  submit({.kind = Request::Kind::kTake, .up_to = up_to, .wanted = n, .done = std::move(done)},
         cancel);
}

void Queue::close(bool cancel_pending, CancellationToken* cancel, Done done) {
  if (!cancel_pending) {
    return submit({.kind = Request::Kind::kClose, .done = std::move(done)}, cancel);
  }
  Line finished;
  {
    MutexLock lock(mu_);
    closed_ = true;
    serve(finished);
  }
  finished.tell();
  done(ok_status(), {});
}

void Queue::put_back(std::vector<QueueElement> elements) {
  const Ref<Queue> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    give_back(elements);
    serve(finished);
  }
  finished.tell();
}

int64_t Queue::size() const {
  MutexLock lock(mu_);
  return store_->size();
}

std::string Queue::describe() const {
  std::string text = str_cat(queue_kind_name(spec_.kind), " (");
  for (size_t i = 0; i < spec_.types.size(); ++i) {
    append_to(text, str_cat(i == 0 ? "" : ", ", spec_.types[i], " ", spec_.shapes[i]));
  }
  MutexLock lock(mu_);
  append_to(text, str_cat(") ", store_->size(), " elements"));
  if (spec_.capacity >= 0) append_to(text, str_cat(" of ", spec_.capacity));
  if (closed_) append_to(text, ", closed");
  return text;
}

std::optional<Resource::Fill> Queue::fill() const {
  MutexLock lock(mu_);
  return Fill{.size = store_->size(), .capacity = spec_.capacity, .closed = closed_};
}

void Queue::submit(Request request, CancellationToken* cancel) {
  const Ref<Queue> self(this);  // `done` may be the last to hold it
  Line finished;
  {
    MutexLock lock(mu_);
    Line& line = line_of(request);
    const Line::Place place = line.add(std::move(request), cancel);
    if (place->cancelled()) {
      drop(place, finished);
    } else {
      serve(finished);
    }
    if (!line.watch(place, [this, place] { abandon(place); })) {
      drop(place, finished);
      serve(finished);
    }
  }
  finished.tell();
}

void Queue::abandon(Line::Place request) {
  // A request that somebody else finished has not been told yet: it waits for this call to end.
  const Ref<Queue> self(this);
  Line finished;
  {
    MutexLock lock(mu_);
    if (!request->waiting()) return;
    drop(request, finished);
    serve(finished);
  }
  finished.tell();
}

void Queue::serve(Line& finished) {
  bool moved = true;
  while (moved) {
    moved = serve_line(putting_, finished);
    moved |= serve_line(taking_, finished);
  }
}

bool Queue::serve_line(Line& line, Line& finished) {
  bool moved = false;
  while (!line.empty()) {
    const Progress progress = advance(*line.begin());
    moved |= progress != Progress::kNone;
    if (progress != Progress::kFinished) break;
    line.finish(line.begin(), finished);
  }
  return moved;
}

Queue::Progress Queue::advance(Request& request) {
  switch (request.kind) {
    case Request::Kind::kPut:
      return advance_put(request);
    case Request::Kind::kTake:
      return advance_take(request);
    case Request::Kind::kClose:
      break;
  }
  if (closed_) {
    request.status = cancelled(queue_kind_name(spec_.kind), " '", name_, "' is already closed.");
  }
  closed_ = true;
  return Progress::kFinished;
}

Queue::Progress Queue::advance_put(Request& request) {
  if (closed_) {
    request.elements.clear();
    request.status = cancelled(queue_kind_name(spec_.kind), " '", name_, "' is closed.");
    return Progress::kFinished;
  }
  const size_t before = request.next;
  while (request.next < request.elements.size() && has_room()) {
    store_->put(std::move(request.elements[request.next++]));
  }
  if (request.next < request.elements.size()) {
    return request.next > before ? Progress::kSome : Progress::kNone;
  }
  request.elements.clear();
  return Progress::kFinished;
}

Queue::Progress Queue::advance_take(Request& request) {
  const auto missing = [&] {
    return request.wanted - static_cast<int64_t>(request.elements.size());
  };
  // Once closed, nobody is left in the other line: what is here is all there will be.
  if (closed_ && store_->size() < missing()) {
    give_back(request.elements);
    if (!request.up_to || store_->size() == 0) {
      request.status = out_of_range(queue_kind_name(spec_.kind), " '", name_,
                                    "' is closed and has insufficient elements (requested ",
                                    request.wanted, ", current size ", store_->size(), ")");
      return Progress::kFinished;
    }
    request.wanted = store_->size();
  }
  const bool begun = !request.elements.empty();
  const int64_t kept = closed_ ? 0 : spec_.min_after_dequeue;
  const int64_t taken = std::min(missing(), store_->size() - kept);
  for (int64_t i = 0; i < taken; ++i) request.elements.push_back(store_->pick());
  if (missing() == 0) {
    if (begun && spec_.kind == QueueKind::kPriority) {
      // What came while it waited may go before what it took at first.
      give_back(request.elements);
      for (int64_t i = 0; i < request.wanted; ++i) request.elements.push_back(store_->pick());
    }
    return Progress::kFinished;
  }
  return taken > 0 ? Progress::kSome : Progress::kNone;
}

void Queue::drop(Line::Place request, Line& finished) {
  const bool takes = request->kind == Request::Kind::kTake;
  request->status = cancelled(takes                                    ? "Dequeue"
                              : request->kind == Request::Kind::kClose ? "Close"
                                                                       : "Enqueue",
                              " operation was cancelled");
  if (takes) give_back(request->elements);
  request->elements.clear();
  line_of(*request).finish(request, finished);
}

void Queue::give_back(std::vector<QueueElement>& elements) {
  for (size_t i = elements.size(); i > 0; --i) store_->put_back(std::move(elements[i - 1]));
  elements.clear();
}

Queue::Line& Queue::line_of(const Request& request) {
  return request.kind == Request::Kind::kTake ? taking_ : putting_;
}

bool Queue::has_room() const { return spec_.capacity < 0 || store_->size() < spec_.capacity; }

}  // namespace millrace
