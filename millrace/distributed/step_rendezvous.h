#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/cluster.h"
#include "millrace/distributed/task_counters.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {

// What everything in a task's process shares. Constant, but for what is counted.
struct TaskContext : RefCounted {
  std::string name;  // "/job:J/replica:R/task:T"
  std::vector<Ref<Device>> devices;
  Ref<WorkerCache> peers;
  Ref<Timer> timer;
  std::unique_ptr<TaskCounters> counters;  // null: nobody counts

  // The device of this task with that name; null when there is none.
  Device* find_device(std::string_view full_name) const;
};

// Where the sends and receives of one step on one task meet. What is sent stays here until a device
// of this task, or a peer, receives it; a receive of what another task sends asks that task.
// Thread-safe.
class StepRendezvous : public Rendezvous {
 public:
  StepRendezvous(int64_t step_id, Ref<const TaskContext> task);

  Status send(std::string_view key, Value value) override;
  // NOT_FOUND when the key's sender is on a task that the cluster does not have. Where the
  // connection to the sender is lost, it is asked again (kMaxRepeats).
  void recv(std::string_view key, Ref<CancellationToken> cancel, Done done) override;
  void abort(Status reason) override;
  // Keys, followed by " from <task>" where a peer was asked.
  std::vector<std::string> waiting() const override;

  // From now on these keys come by send(), though their senders are on other tasks: nobody is asked
  // for them.
  void expect(std::vector<std::string> given);

  // send() of what comes from outside: a second one changes nothing.
  Status give(std::string_view key, Value value);

  // What a peer receives: never asks anybody else. A peer that lost its connection asks again: then
  // who asked before gets ABORTED, and the value, if it was handed out, comes again. For that the
  // last 256 values of up to 16 KiB are kept until the step is forgotten.
  void recv_here(std::string_view key, Ref<CancellationToken> cancel, Done done);

  // abort() for a reason that did not arise in this task's kernels.
  void abort_from_outside(Status reason);
  // True when the step ended here because of something outside: such an abort, or a peer's error.
  bool ended_from_outside() const;

 private:
  struct RemoteRecv;

  void recv_remote(const std::string& task, std::string_view key, Ref<CancellationToken> cancel,
                   Done done);
  bool is_given(std::string_view key) const;
  void ask(const Ref<WorkerInterface>& peer, const Ref<RemoteRecv>& recv);
  void hand_out(const std::string& key, const CancellationToken* asker, const Status& status,
                const Value& value);
  void note_outside();
  void forget(const RemoteRecv& recv);

  const int64_t step_id_;
  const Ref<const TaskContext> task_;
  const Ref<Rendezvous> here_;

  mutable Mutex mu_;
  Status aborted_ MR_GUARDED_BY(mu_);
  bool outside_ MR_GUARDED_BY(mu_) = false;
  uint64_t last_remote_ MR_GUARDED_BY(mu_) = 0;
  // By number: ended in the order in which they began, whatever addresses they have.
  std::map<uint64_t, Ref<RemoteRecv>> remote_ MR_GUARDED_BY(mu_);
  std::unordered_set<std::string> given_ MR_GUARDED_BY(mu_);  // will be
  std::unordered_set<std::string> came_ MR_GUARDED_BY(mu_);   // was
  // By key: what ends the wait of the peer that asked last, and what was handed out.
  std::unordered_map<std::string, Ref<CancellationToken>> asked_ MR_GUARDED_BY(mu_);
  std::unordered_map<std::string, Value> handed_out_ MR_GUARDED_BY(mu_);
  std::deque<std::string> handed_out_order_ MR_GUARDED_BY(mu_);  // oldest first
};

}  // namespace millrace
