#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"

namespace millrace {

// Those who wait at something that steps share, a queue for instance, in the order in which they
// came; they keep no thread. Each waits until it is served or its token is cancelled, whichever
// comes first, and is told once. A Request is what one wants and gets, and has a function tell()
// that says so to who waits.
//
// Belongs to the lock of its owner, which goes like this:
//
//   {
//     MutexLock lock(mu_);
//     const Line::Place place = line_.add(std::move(request), cancel);
//     serve(finished);  // line_.finish() for all who have what they want
//     if (!line_.watch(place, [this, place] { abandon(place); })) line_.finish(place, finished);
//   }
//   finished.tell();  // without the lock
//
// where abandon(place), with the lock, does nothing for one who does not wait any more, and else
// finishes it. An entry stays where it is in memory, in its line or among the finished, until
// tell() has taken its callback back, so that the callback may always look at it. The owner must
// live until then; `tell` may let go of it.
template <class Request>
class WaitingLine {
 public:
  class Entry : public Request {
   public:
    Entry(Request request, CancellationToken* cancel)
        : Request(std::move(request)), cancel_(cancel) {}
    // Not finished yet.
    bool waiting() const { return waiting_; }
    bool cancelled() const { return cancel_ != nullptr && cancel_->cancelled(); }

   private:
    friend WaitingLine;
    CancellationToken* const cancel_;
    bool waiting_ = true;
    uint64_t ticket_ = 0;
  };
  using Place = typename std::list<Entry>::iterator;

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  Place begin() { return entries_.begin(); }
  Place end() { return entries_.end(); }

  // One more, at the end. `cancel` may be null; it is not touched any more once tell() has called.
  Place add(Request request, CancellationToken* cancel) {
    return entries_.emplace(entries_.end(), std::move(request), cancel);
  }
  // Moves one from this line to the end of those that are to be told.
  void finish(Place place, WaitingLine& finished) {
    place->waiting_ = false;
    finished.entries_.splice(finished.entries_.end(), entries_, place);
  }
  // Has `given_up` called when the token of one who waits still is cancelled. False when it is
  // already, and so the wait is over. With the owner's lock held: the callback, which takes it,
  // cannot come before its ticket is known; the token calls back without a lock of its own.
  [[nodiscard]] bool watch(Place place, UniqueFunction<void()> given_up) {
    if (!place->waiting_ || place->cancel_ == nullptr) return true;
    place->ticket_ = place->cancel_->on_cancel(std::move(given_up));
    return place->ticket_ != 0;
  }
  // Tells all, in order, and empties the line; the callback of each is gone by then: where it runs,
  // this waits for its end. No lock may be held.
  void tell() {
    while (!entries_.empty()) {
      Entry& first = entries_.front();
      if (first.ticket_ != 0) first.cancel_->remove(first.ticket_);
      Request request = std::move(static_cast<Request&>(first));
      entries_.pop_front();
      request.tell();
    }
  }

 private:
  std::list<Entry> entries_;
};

}  // namespace millrace
