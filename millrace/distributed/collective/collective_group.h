#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/collective/collective_calls.h"
#include "millrace/distributed/collective/collective_epoch.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// How a member reaches the other tasks of its group, and its own. Thread-safe.
class CollectiveLinks : public RefCounted {
 public:
  using ChunkDone = UniqueFunction<void(Result<Tensor>)>;

  virtual void join(JoinGroupRequest request, Ref<CancellationToken> cancel,
                    UniqueFunction<void(Result<GroupView>)> done) = 0;
  virtual void recv_chunk(const std::string& task, RecvChunkRequest request,
                          Ref<CancellationToken> cancel, ChunkDone done) = 0;
  // Not waited for, and lost when the task is.
  virtual void end_group(const std::string& task, EndGroupRequest request) = 0;

  virtual std::string leader() const = 0;  // the task that forms groups
  virtual uint64_t incarnation() const = 0;
  virtual Timer& timer() const = 0;
};

// A member of a group: joins it when it is first used, and anew after something was lost. An epoch
// ends for all of its members with the first of them that is lost, leaves or fails; who notices
// tells the others. Thread-safe; nothing waits on a thread.
class CollectiveGroup final : public RefCounted {
 public:
  CollectiveGroup(Ref<CollectiveLinks> links, int64_t key, std::string member);
  ~CollectiveGroup() override;

  int64_t key() const { return key_; }
  const std::string& member() const { return member_; }
  CollectiveLinks& links() const { return *links_; }

  // Begins an exchange in the epoch that lives, or in the next one.
  void begin(const Ref<Exchange>& exchange);
  // What a peer asks: answered when the value is there.
  void recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                  CollectiveLinks::ChunkDone done);
  // The epoch is over: what is under way in it ends with `reason`. Where `tell`, the other members
  // and the leader are told so. Nothing for another epoch than the one that lives.
  void end_epoch(uint64_t epoch, const Status& reason, bool tell);
  // Answers everything with `reason`, now and later.
  void shut_down(const Status& reason);

  // For exchanges. A value for `readers` others, which is not changed until they have it.
  void publish(const Exchange& exchange, Slot slot, Tensor value, int readers);
  // The exchange has its result; its mailbox stays until others have what is there for them.
  void finished(const Exchange& exchange);
  // The exchange ends before it is done, for a reason of its own, which it tells its caller. The
  // others of its epoch are told `to_others`.
  void leave(const Exchange& exchange, const Status& to_others);
  // The exchange has waited for the group for too long. False: it does not wait for that.
  bool expire(const Exchange& exchange, const Status& reason);

  // The task of a rank in an epoch; empty where that is not the one that lives, or has no such
  // rank.
  std::string task_of(uint64_t epoch, int64_t rank) const;
  // What its exchanges wait for, by step.
  std::vector<std::pair<int64_t, std::string>> waits() const;

 private:
  // A pull of an epoch that this member may be joining, and what the timer has to forget it.
  struct EarlyPull {
    ChunkPull pull;
    uint64_t ticket = 0;
  };

  void join();
  void joined(int64_t attempt, Result<GroupView> view);
  void join_later();
  Status admit(const Exchange& exchange) MR_REQUIRES(mu_);
  void start(const Ref<Exchange>& exchange, const Status& entered);
  Status no_such_epoch(const RecvChunkRequest& request) const MR_REQUIRES(mu_);
  // Keeps a pull until the epoch begins. One of an epoch that this member does not hear of in time
  // is of an old one.
  void wait_early(const RecvChunkRequest& request, const Ref<ChunkCall>& call) MR_REQUIRES(mu_);
  // Takes them out, with what the timer has of them.
  std::vector<ChunkPull> take_early() MR_REQUIRES(mu_);
  // True when the call was among them.
  bool take_early(const Ref<ChunkCall>& call) MR_REQUIRES(mu_);
  void stop_joining() MR_REQUIRES(mu_);
  void drop_pull(const RecvChunkRequest& request, const Ref<ChunkCall>& call, const Status& reason);
  void tell_others(const CollectiveEpoch& epoch, const Status& reason);

  const Ref<CollectiveLinks> links_;
  const int64_t key_;
  const std::string member_;

  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  Ref<CollectiveEpoch> epoch_ MR_GUARDED_BY(mu_);  // null: none lives
  // Since the last attempt to join.
  int64_t attempt_ MR_GUARDED_BY(mu_) = 0;
  int64_t size_ MR_GUARDED_BY(mu_) = 0;
  int64_t min_size_ MR_GUARDED_BY(mu_) = 0;
  bool joining_ MR_GUARDED_BY(mu_) = false;
  Ref<CancellationToken> join_over_ MR_GUARDED_BY(mu_);
  int retries_ MR_GUARDED_BY(mu_) = 0;
  std::vector<Ref<Exchange>> waiting_ MR_GUARDED_BY(mu_);
  uint64_t join_ticket_ MR_GUARDED_BY(mu_) = 0;  // of the timer, until join_later() is due
  std::vector<EarlyPull> early_ MR_GUARDED_BY(mu_);
  // Of the epoch that ended last.
  uint64_t last_epoch_ MR_GUARDED_BY(mu_) = 0;
  int64_t last_number_ MR_GUARDED_BY(mu_) = 0;
  Status last_reason_ MR_GUARDED_BY(mu_);
  std::set<int64_t> told_steps_ MR_GUARDED_BY(mu_);  // those that were told why
  // An end that came before the view of its epoch, which it may be joining.
  uint64_t early_end_ MR_GUARDED_BY(mu_) = 0;
  Status early_reason_ MR_GUARDED_BY(mu_);
  Status untold_ MR_GUARDED_BY(mu_);  // why it ended, where nobody was there to be told
};

}  // namespace millrace
