#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/kernel/value.h"
#include "millrace/ops/queue/element_store.h"
#include "millrace/ops/queue/waiting_line.h"

namespace millrace {

// A queue that steps share. Who cannot be served waits in line without a thread: one line for those
// that put (and for those that close, so that a close comes after the puts before it), one for
// those that take, each strictly first come, first served. Thread-safe.
//
// 1. Both lines are as far as they can get whenever the lock is free.
// 2. A request that was given a number of elements to take holds what it got so far; it gives them
//    back when it fails, so no element is ever lost. Those are not in size().
// 3. `done` is called once, without the lock, after the request's cancellation callback is gone;
//    the token is not touched afterwards. It must keep the queue alive until then.
class Queue final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Queue";
  // The elements that were taken; empty for other requests and on failure.
  using Done = UniqueFunction<void(Status, std::vector<QueueElement>)>;

  // `name` is for messages and for handle().
  Queue(std::string_view container, std::string_view name, QueueSpec spec);

  const QueueSpec& spec() const { return spec_; }
  const std::string& name() const { return name_; }
  // Its name in the form of a reference; see handle.h.
  const Ref<RefCell>& handle() const { return handle_; }

  // Puts elements that fit spec(), in order, as room comes. Once the queue is closed: CANCELLED,
  // and what was put stays. `cancel` may be null.
  void enqueue(std::vector<QueueElement> elements, CancellationToken* cancel, Done done);
  // Takes n elements, collecting them as they come. Once the queue is closed and has too few:
  // OUT_OF_RANGE, or, with `up_to`, the rest unless there is none.
  void dequeue(int64_t n, bool up_to, CancellationToken* cancel, Done done);
  // Lets nobody put any more: after those in line, or, with `cancel_pending`, at once. CANCELLED
  // when the queue is closed already, except with `cancel_pending`.
  void close(bool cancel_pending, CancellationToken* cancel, Done done);
  // Returns elements that were taken but could not be used, to be the next ones.
  void put_back(std::vector<QueueElement> elements);

  int64_t size() const;
  std::string describe() const override;
  std::optional<Fill> fill() const override;

 private:
  struct Request;
  using Line = WaitingLine<Request>;
  enum class Progress : uint8_t { kNone, kSome, kFinished };

  ~Queue() override;

  // Puts a request in its line and serves.
  void submit(Request request, CancellationToken* cancel);
  // A request's token was cancelled.
  void abandon(Line::Place request);
  void serve(Line& finished) MR_REQUIRES(mu_);
  // True when something moved.
  bool serve_line(Line& line, Line& finished) MR_REQUIRES(mu_);
  Progress advance(Request& request) MR_REQUIRES(mu_);
  Progress advance_put(Request& request) MR_REQUIRES(mu_);
  Progress advance_take(Request& request) MR_REQUIRES(mu_);
  // Moves a request from its line to `finished`, cancelled.
  void drop(Line::Place request, Line& finished) MR_REQUIRES(mu_);
  void give_back(std::vector<QueueElement>& elements) MR_REQUIRES(mu_);
  Line& line_of(const Request& request) MR_REQUIRES(mu_);
  bool has_room() const MR_REQUIRES(mu_);

  const QueueSpec spec_;
  const std::string name_;
  const Ref<RefCell> handle_;

  mutable Mutex mu_;
  const std::unique_ptr<ElementStore> store_ MR_PT_GUARDED_BY(mu_);
  bool closed_ MR_GUARDED_BY(mu_) = false;
  Line putting_ MR_GUARDED_BY(mu_);
  Line taking_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
