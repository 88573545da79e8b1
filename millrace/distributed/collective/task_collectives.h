#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/distributed/collective/collective_group.h"
#include "millrace/distributed/collective/group_leader.h"
#include "millrace/distributed/step_rendezvous.h"
#include "millrace/distributed/wait_watch.h"
#include "millrace/kernel/collectives.h"

namespace millrace {

// What a task has of collective operations: the groups that its devices are members of, and, on the
// first task of the cluster, those that it leads. A member that is a device of no task of the
// cluster, as in a session without one, stands for the device of the same kind and number of this
// task. Whoever waits for `report_after_ms` is reported. Thread-safe.
class TaskCollectives final : public Collectives {
 public:
  explicit TaskCollectives(Ref<const TaskContext> task);

  void reduce(Request request, Tensor input, Merge merge, Final final, Done done) override;
  void gather(Request request, Tensor input, Done done) override;
  void broadcast_send(Request request, Tensor input, Done done) override;
  void broadcast_recv(Request request, DType dtype, Shape shape, Done done) override;
  std::vector<std::pair<int64_t, std::string>> waits() const override;
  void shut_down(const Status& reason) override;

  // What peers ask, as WorkerInterface says.
  void join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<GroupView>)> done);
  void recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                  CollectiveLinks::ChunkDone done);
  Status end_group(const EndGroupRequest& request);

 private:
  class Links;
  using Key = std::pair<int64_t, std::string>;  // of the group, and its member

  std::string leader() const;
  // Says to a task, perhaps this one, that an epoch is over.
  void tell(const std::string& task, EndGroupRequest request);
  // What recv_chunk() does, uncounted: also for members of this task.
  void recv_here(RecvChunkRequest request, Ref<CancellationToken> cancel,
                 CollectiveLinks::ChunkDone done);
  Result<Ref<CollectiveGroup>> find_member(const RecvChunkRequest& request) const;
  // The group in which the request's device is a member; fills in its full name.
  Result<Ref<CollectiveGroup>> find_group(Request& request, const Tensor& input);
  template <class Make>
  void begin(Request request, const Tensor& input, Done done, Make make);

  const Ref<const TaskContext> task_;
  const Ref<GroupLeader> leads_;
  const Ref<WaitWatch> watch_;
  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  std::map<Key, Ref<CollectiveGroup>> groups_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
