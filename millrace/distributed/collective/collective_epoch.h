#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/distributed/collective/collective_calls.h"
#include "millrace/distributed/collective/waiting_call.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class Exchange;

// A part of what a member has in an instance, which others ask for.
struct Slot {
  int64_t phase = 0;
  int64_t chunk = 0;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

// What a peer asks a member for, and the call in which it waits for that.
using ChunkCall = WaitingCall<Result<Tensor>>;
struct ChunkPull {
  RecvChunkRequest request;
  Ref<ChunkCall> call;
};

// A group as one member sees it while it is the same: who is in it, and what the members exchange.
// For each execution of an instance there is a mailbox, with the values that others have not taken
// yet and the pulls that came before their values.
class CollectiveEpoch : public RefCounted {
 public:
  CollectiveEpoch(int64_t group_key, GroupView agreed, int own_rank);
  ~CollectiveEpoch() override;

  const int64_t group_key;
  const GroupView view;
  const int rank;
  const Ref<CancellationToken> over = make_ref<CancellationToken>();  // ends what it has asked for
  int size() const { return static_cast<int>(view.members.size()); }
  // "rank 2 (/job:worker/replica:0/task:2)".
  std::string who(int64_t member_rank) const;

  // The rest belongs to the group's lock. Calls that are handed out are the caller's to answer.

  // The exchange begins its instance's next execution. INVALID_ARGUMENT when somebody who asks for
  // a value of it does something else.
  Status enter(const Ref<Exchange>& exchange);

  struct Answer {
    bool waits = false;  // else `value` is the answer
    Result<Tensor> value = unknown("it waits");
    Status disagree;         // members do not do the same, with which the epoch is over
    Ref<ChunkCall> instead;  // the same peer's call before, whose connection was lost
  };
  // A peer asks: it gets the value, or an error, or waits until publish() or finish().
  Answer ask(const RecvChunkRequest& request, const Ref<ChunkCall>& call);
  // A pull that waits no longer, if it does.
  void drop(const RecvChunkRequest& request, const Ref<ChunkCall>& call);

  // A value for `readers` others: the calls that have waited for it, each to be answered with it.
  std::vector<Ref<ChunkCall>> publish(const Exchange& exchange, Slot slot, const Tensor& value,
                                      int readers);
  // The exchange has its result; its mailbox stays until others have what is there for them. The
  // calls that have waited for what it does not have.
  std::vector<Ref<ChunkCall>> finish(const Exchange& exchange);

  // The exchanges that have begun and not finished.
  std::vector<Ref<Exchange>> under_way() const;
  // Empties all: the calls that have waited.
  std::vector<Ref<ChunkCall>> clear();

 private:
  struct Mailbox {
    struct Value {
      Tensor tensor;
      int readers = 0;  // who have not asked for it yet
    };
    Ref<Exchange> exchange;  // null: this member has not begun it
    bool finished = false;   // what is left here is for others
    std::map<Slot, Value> values;
    std::set<std::pair<Slot, int64_t>> handed_out;  // to which ranks
    std::vector<ChunkPull> pulls;                   // that wait for values
  };
  using Key = std::pair<int64_t, int64_t>;  // instance, sequence

  static Key key_of(const Exchange& exchange);
  Result<Mailbox*> find_mailbox(const RecvChunkRequest& request);
  Status differ(const Exchange& exchange, const RecvChunkRequest& request) const;

  std::map<Key, Mailbox> mailboxes_;
  std::map<int64_t, int64_t> begun_;  // executions, by instance
  size_t waiting_pulls_ = 0;
};

}  // namespace millrace
