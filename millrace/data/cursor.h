#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/data/outcome.h"

namespace millrace::data {

// An iterator that many steps ask at once. Who asks waits in line without a thread, first come,
// first served; one thread at a time works for the line: that of who asks, or, for a dataset that
// may wait, one that may block. Thread-safe.
//
// 1. A request that is cancelled is answered at once. What is being made for it goes to the next in
//    line, or waits for one: no element is lost.
// 2. `done` is called once, without the lock, after the request's cancellation callback is gone.
// 3. stop() ends the work; requests in line are answered with CANCELLED.
class Cursor final : public RefCounted {
 public:
  // OUT_OF_RANGE at the end.
  using Next = UniqueFunction<void(Result<Element>)>;
  using Saved = UniqueFunction<void(Result<Ref<SavedState>>)>;

  static Result<Ref<Cursor>> make(Ref<Dataset> dataset, Ref<Environment> environment);

  void next(Ref<CancellationToken> cancel, Next done);
  void save(Ref<CancellationToken> cancel, Saved done);
  // Before anybody asked. Waits; for threads that may block.
  Status restore(const SavedState& state);
  void stop();

  const Dataset& dataset() const { return *dataset_; }
  // A table of what its stages did; see StageTable.
  std::string table() const { return stages_->to_string(); }

 private:
  struct Request;

  Cursor(Ref<Dataset> dataset, Ref<Environment> environment, Iteration iteration,
         std::unique_ptr<Iterator> iterator);
  ~Cursor() override;

  void submit(Ref<Request> request);
  void abandon(Request& request);
  // Serves the line until it is empty. On a thread that must not block, leaves the rest to another
  // where there is something to wait for.
  void work(bool may_block);
  Result<Ref<SavedState>> write_state();
  Status position(StateFields& state);

  const Ref<Dataset> dataset_;
  const Ref<Environment> environment_;
  const Ref<StageTable> stages_;
  // Of the thread that works.
  const std::unique_ptr<Iterator> iterator_;
  std::optional<Outcome> ready_;  // made for a request that was cancelled

  Mutex mu_;
  std::deque<Ref<Request>> line_ MR_GUARDED_BY(mu_);
  bool working_ MR_GUARDED_BY(mu_) = false;
};

}  // namespace millrace::data
