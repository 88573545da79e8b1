#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/collective/collective_calls.h"
#include "millrace/distributed/collective/waiting_call.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class Exchange;

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

// A part of what a member has in an instance, which others ask for.
struct Slot {
  int64_t phase = 0;
  int64_t chunk = 0;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

// A group as one member sees it while it is the same.
struct CollectiveEpoch : RefCounted {
  using ChunkCall = WaitingCall<Result<Tensor>>;
  // What the members exchange in one execution of an instance.
  struct Mailbox {
    struct Value {
      Tensor tensor;
      int readers = 0;  // who have not asked for it yet
    };
    struct Pull {
      RecvChunkRequest request;
      Ref<ChunkCall> call;
    };
    Ref<Exchange> exchange;  // null: this member has not begun it
    bool finished = false;   // what is left here is for others
    std::map<Slot, Value> values;
    std::set<std::pair<Slot, int64_t>> handed_out;  // to which ranks
    std::vector<Pull> pulls;                        // that wait for values
  };
  using Key = std::pair<int64_t, int64_t>;  // instance, sequence

  CollectiveEpoch(GroupView agreed, int own_rank);
  ~CollectiveEpoch() override;

  const GroupView view;
  const int rank;
  const Ref<CancellationToken> over = make_ref<CancellationToken>();  // ends what it has asked for
  int size() const { return static_cast<int>(view.members.size()); }
  // "rank 2 (/job:worker/replica:0/task:2)".
  std::string who(int64_t member_rank) const;

  // The rest belongs to the group's lock.
  std::map<Key, Mailbox> mailboxes;
  std::map<int64_t, int64_t> begun;  // executions, by instance
  size_t waiting_pulls = 0;
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

  // What its exchanges wait for, by step.
  std::vector<std::pair<int64_t, std::string>> waits() const;

 private:
  using Mailbox = CollectiveEpoch::Mailbox;
  using ChunkCall = CollectiveEpoch::ChunkCall;

  void join();
  void joined(int64_t attempt, Result<GroupView> view);
  void join_later();
  Status admit(const Exchange& exchange) MR_REQUIRES(mu_);
  // INVALID_ARGUMENT when somebody who asks for a value of it does something else.
  Status enter(const Ref<Exchange>& exchange) MR_REQUIRES(mu_);
  void start(const Ref<Exchange>& exchange, const Status& entered);
  Result<Mailbox*> find_mailbox(const RecvChunkRequest& request) MR_REQUIRES(mu_);
  Status no_such_epoch(const RecvChunkRequest& request) const MR_REQUIRES(mu_);
  Status differ(const CollectiveEpoch& epoch, const Exchange& exchange,
                const RecvChunkRequest& request) const;
  // A pull of an epoch that this member does not hear of in time is of an old one.
  void forget_early(const RecvChunkRequest& request, const Ref<ChunkCall>& call);
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
  std::vector<Mailbox::Pull> early_ MR_GUARDED_BY(mu_);  // of an epoch that it may be joining
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
