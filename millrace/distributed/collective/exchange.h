#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/distributed/collective/collective_group.h"
#include "millrace/distributed/wait_watch.h"
#include "millrace/kernel/collectives.h"

namespace millrace {

// One call of a collective operation: a member's part in one execution of an instance. What kinds
// there are, all of them do the same: they publish values, and pull those of others, several at a
// time. What they do with a value runs one after the other, on whichever thread brought it.
class Exchange : public Waiting {
 public:
  // `what` is the same for all members: "Add of float [2]". `input` (no tensor: there is none) is
  // kept as it is until all others have had what they need of it.
  Exchange(Ref<CollectiveGroup> group, Collectives::Request request, std::string what,
           const Tensor& input, Collectives::Done done);

  const Collectives::Request& request() const { return request_; }
  const std::string& what() const { return what_; }
  // "CollectiveReduce instance 7 of group 1".
  const std::string& name() const { return name_; }

  // From begin() on it ends with its group, its caller, its deadline, or done.
  void begin(const Ref<WaitWatch>& watch);
  // The group lets it in; called once, before start().
  void enter(Ref<CollectiveEpoch> epoch, int64_t sequence);
  bool entered() const { return entered_; }
  bool over() const { return over_; }
  const Ref<CollectiveEpoch>& epoch() const { return epoch_; }
  int64_t sequence() const { return sequence_; }
  void start();
  // Ends with an error of the group's.
  void end(const Status& reason);

  // "CollectiveReduce instance 7 of group 1: waits for rank 2 (...)".
  std::string waits() const;
  void tell(int64_t waited_ms) override;

 protected:
  struct Pull {
    int from = 0;
    Slot slot;
    DType dtype = DType::kInvalid;
    int64_t elements = 0;  // that are expected
    UniqueFunction<void(const Tensor&)> use;
    int64_t asked_ns = 0;
    bool repeated = false;
  };

  // To be done first; then all_pulled() once nothing that was asked for is missing.
  virtual Status run() = 0;
  virtual Status all_pulled() = 0;

  int rank() const { return epoch_->rank; }
  int size() const { return epoch_->size(); }
  void publish(Slot slot, Tensor value, int readers);
  // Pulls happen in the order of these calls, as far as others do not have to wait for them.
  void pull(Pull pull);
  void finish(Tensor result);

  // Some elements of a tensor, as a vector that shares its memory.
  static Tensor slice(const Tensor& tensor, int64_t begin, int64_t count);

 private:
  void later(UniqueFunction<void()> task);
  void ask_for_more();
  void ask(Pull pull);
  // A connection may have ended before anything was asked, one to a process that is no more: then
  // asking once more is worth it.
  bool repeats(const Pull& pull, const Status& status) const;
  void ask_again(Pull pull);
  void pulled(Pull pull, Result<Tensor> value);
  void lost(int from, const Status& status);
  // Ends with an error of its own.
  void fail(const Status& status);
  // Nobody waits for it any more.
  void settle();
  void answer(Result<Tensor> result);

  const Ref<CollectiveGroup> group_;
  const Collectives::Request request_;
  const std::string what_;
  const std::string name_;
  const Snapshot input_stays_;
  const Ref<WaitingCall<Result<Tensor>>> call_;
  Ref<WaitWatch> watch_;
  std::atomic<uint64_t> watch_ticket_{0};
  std::atomic<uint64_t> deadline_{0};
  std::atomic<bool> over_{false};

  std::atomic<bool> entered_{false};
  // Constant once it was entered.
  Ref<CollectiveEpoch> epoch_;
  int64_t sequence_ = 0;

  // What the queue's tasks use, one at a time.
  std::deque<Pull> to_pull_;
  int in_flight_ = 0;
  bool started_ = false;

  mutable Mutex mu_;
  std::deque<UniqueFunction<void()>> queue_ MR_GUARDED_BY(mu_);
  bool draining_ MR_GUARDED_BY(mu_) = false;
  std::map<int, int> asked_ MR_GUARDED_BY(mu_);    // pulls that wait, by rank
  std::set<uint64_t> repeats_ MR_GUARDED_BY(mu_);  // of the timer: pulls to be asked again
};

// Elements in a chunk, which is asked for at once: 1 MiB.
int64_t chunk_elements(DType dtype);

Ref<Exchange> make_reduce(Ref<CollectiveGroup> group, Collectives::Request request, Tensor input,
                          Collectives::Merge merge, Collectives::Final final,
                          Collectives::Done done);
Ref<Exchange> make_gather(Ref<CollectiveGroup> group, Collectives::Request request, Tensor input,
                          Collectives::Done done);
// `input` is no tensor where the member receives.
Ref<Exchange> make_broadcast(Ref<CollectiveGroup> group, Collectives::Request request, Tensor input,
                             DType dtype, Shape shape, Collectives::Done done);

}  // namespace millrace
