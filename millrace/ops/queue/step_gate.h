#pragma once

#include <map>
#include <string>
#include <string_view>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/queue/waiting_line.h"

namespace millrace {

// Where the replicas of a synchronous training wait between giving their gradients and beginning
// the next step. A replica says at which step it is and waits until the gate is at a later one.
// Nothing is used up by going through, so that a fast replica cannot go in another's place.
//
// A training whose tasks may be lost lives in eras, as accumulator.h says. The gate tells replicas
// the era with the step; one of another era does not wait.
//
// A gate that was never set is at no step: all wait. Thread-safe; who waits keeps no thread.
class StepGate final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "StepGate";
  using Done = UniqueFunction<void(Status, int64_t era, int64_t step)>;

  explicit StepGate(std::string_view name);

  // A training begins, or an era of it: the gate is at `step`, nobody has left it, and it is not
  // closed. Where that era, not 0, has begun already, as open().
  void reset(int64_t era, int64_t step);
  // `step` begins: whoever waits at an earlier one goes on with it. Nothing where it has begun, or
  // one after it.
  void open(int64_t step);
  // Lets `count` of those who are at `step` go on with it once more, instead of those who were let
  // before. For trainings whose steps need more gradients than there are replicas.
  void admit(int64_t step, int64_t count);
  // One of `replicas` gives no more gradients. When fewer than `required` are left no step can end
  // any more, and the gate is closed.
  void leave(int64_t replicas, int64_t required);
  // Whoever would have to wait from now on, or waits, gets OUT_OF_RANGE with this reason.
  void close(std::string_view reason);

  // Calls `done` with the gate's era and the step to go on with: that of the gate when it is later
  // or of another era, else `local_step` for one that is admitted. In era 0, one who is more than a
  // step ahead comes from before the training was set back, and goes on with the gate. `done` is
  // called once, without the lock, after the cancellation callback is gone. `cancel` may be null.
  void wait(int64_t era, int64_t local_step, CancellationToken* cancel, Done done);

  // Replicas that do not step together, but stay close: the gate is where the slowest of them is.
  // Not beside the functions above.

  // One more, or the same anew: it is where the slowest of the others is. The number that stands
  // for it below, and for nobody who was called so before.
  uint64_t join(const std::string& replica);
  // It has made a step. Calls `done` with how many it has made, once none of the others is more
  // than `staleness` steps behind it; ABORTED when it is not there any more. Otherwise as wait().
  // There are no eras.
  void pace(const std::string& replica, uint64_t number, int64_t staleness,
            CancellationToken* cancel, Done done);
  // It makes no more: nobody waits for it.
  void withdraw(const std::string& replica, uint64_t number);

  const std::string& name() const { return name_; }
  std::string describe() const override;

 private:
  struct Waiter;
  using Line = WaitingLine<Waiter>;

  ~StepGate() override;
  // Whether a waiter may go on, and notes with which step; uses up an admission.
  bool passes(Waiter& waiter) MR_REQUIRES(mu_);
  // Puts the gate at `step`, where it is not further.
  void move_to(int64_t step, Line& finished) MR_REQUIRES(mu_);
  // Moves those who wait no longer to `finished`.
  void serve(Line& finished) MR_REQUIRES(mu_);
  // Puts the gate where the slowest replica is.
  void follow_slowest(Line& finished) MR_REQUIRES(mu_);
  void drop(Line::Place waiter, Line& finished) MR_REQUIRES(mu_);
  // A waiter's token was cancelled.
  void abandon(Line::Place waiter);

  const std::string name_;

  mutable Mutex mu_;
  bool set_ MR_GUARDED_BY(mu_) = false;
  int64_t era_ MR_GUARDED_BY(mu_) = 0;
  int64_t step_ MR_GUARDED_BY(mu_) = 0;
  int64_t admitted_step_ MR_GUARDED_BY(mu_) = 0;
  int64_t admissions_ MR_GUARDED_BY(mu_) = 0;
  int64_t left_ MR_GUARDED_BY(mu_) = 0;
  std::string closed_ MR_GUARDED_BY(mu_);  // why, empty while it is not
  Line waiting_ MR_GUARDED_BY(mu_);
  struct Replica {
    uint64_t number = 0;
    int64_t steps = 0;
  };
  uint64_t last_number_ MR_GUARDED_BY(mu_) = 0;
  std::map<std::string, Replica> replicas_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
