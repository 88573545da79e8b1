#include "millrace/distributed/collective/task_collectives.h"

#include <algorithm>

#include "millrace/distributed/collective/exchange.h"
#include "millrace/distributed/patience.h"
#include "millrace/ops/collective/merge.h"

namespace millrace {
namespace {

constexpr size_t kMaxGroups = 1024;

}  // namespace

// Holds the task's collectives, which hold it by their groups until they are shut down.
class TaskCollectives::Links final : public CollectiveLinks {
 public:
  explicit Links(Ref<TaskCollectives> own) : own_(std::move(own)) {}

  void join(JoinGroupRequest request, Ref<CancellationToken> cancel,
            UniqueFunction<void(Result<GroupView>)> done) override {
    const std::string task = leader();
    if (task == own_->task_->name) {
      return own_->join_group(std::move(request), std::move(cancel), std::move(done));
    }
    Result<Ref<WorkerInterface>> peer = own_->task_->peers->find(task);
    if (!peer.ok()) return done(peer.status());
    (*peer)->join_group(std::move(request), std::move(cancel), std::move(done));
  }
  void recv_chunk(const std::string& task, RecvChunkRequest request, Ref<CancellationToken> cancel,
                  ChunkDone done) override {
    if (task == own_->task_->name) {
      return own_->recv_here(std::move(request), std::move(cancel), std::move(done));
    }
    Result<Ref<WorkerInterface>> peer = own_->task_->peers->find(task);
    if (!peer.ok()) return done(peer.status());
    (*peer)->recv_chunk(std::move(request), std::move(cancel),
                        [traffic = &own_->task_->counters->together_with(task), held = own_->task_,
                         done = std::move(done)](Result<Tensor> chunk) mutable {
                          if (chunk.ok()) traffic->received(chunk->bytes());
                          done(std::move(chunk));
                        });
  }
  void end_group(const std::string& task, EndGroupRequest request) override {
    own_->tell(task, std::move(request));
  }

  std::string leader() const override { return own_->leader(); }
  uint64_t incarnation() const override { return own_->task_->devices[0]->info().incarnation; }
  Timer& timer() const override { return *own_->task_->timer; }

 private:
  const Ref<TaskCollectives> own_;
};

TaskCollectives::TaskCollectives(Ref<const TaskContext> task)
    : task_(std::move(task)),
      leads_(make_ref<GroupLeader>(task_->devices[0]->info().incarnation, task_->timer,
                                   [this](const std::string& name, EndGroupRequest request) {
                                     tell(name, std::move(request));
                                   })),
      watch_(make_ref<WaitWatch>(task_->timer, report_after_ms())) {}

void TaskCollectives::tell(const std::string& task, EndGroupRequest request) {
  if (task == task_->name) return (void)end_group(request);
  if (Result<Ref<WorkerInterface>> peer = task_->peers->find(task); peer.ok()) {
    (*peer)->end_group(std::move(request), [](const Status&) {});
  }
}

std::string TaskCollectives::leader() const {
  std::string first = task_->name;
  for (const std::string& task : task_->peers->tasks()) first = std::min(first, task);
  return first;
}

Result<Ref<CollectiveGroup>> TaskCollectives::find_group(Request& request, const Tensor& input) {
  if (input.valid() && (!is_plain(input.dtype()) || !input.buffer() ||
                        input.buffer()->space() != MemorySpace::kHost)) {
    return unimplemented(request.op, ": expected plain elements in host memory, got ",
                         input.dtype());
  }
  MR_TRY_ASSIGN(DeviceName device, DeviceName::parse(request.device));
  MR_TRY_ASSIGN(const DeviceName task, DeviceName::parse(task_->name));
  device.job = task.job;
  device.replica = task.replica;
  device.task = task.task;
  if (!device.complete()) {
    return invalid_argument(request.op, ": expected the name of a device, got ", request.device);
  }
  request.device = device.to_string();
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  const Key key = {request.group_key, request.device};
  if (!groups_.contains(key) && groups_.size() >= kMaxGroups) {
    return resource_exhausted("task ", task_->name, " is in ", kMaxGroups,
                              " groups, as many as it may be");
  }
  Ref<CollectiveGroup>& found = groups_[key];
  if (!found) {
    found = make_ref<CollectiveGroup>(make_ref<Links>(Ref<TaskCollectives>(this)),
                                      request.group_key, request.device);
  }
  return found;
}

template <class Make>
void TaskCollectives::begin(Request request, const Tensor& input, Done done, Make make) {
  Result<Ref<CollectiveGroup>> group = find_group(request, input);
  if (!group.ok()) return done(group.status());
  const Ref<Exchange> exchange = make(*std::move(group), std::move(request), std::move(done));
  exchange->begin(watch_);
}

void TaskCollectives::reduce(Request request, Tensor input, Merge merge, Final final, Done done) {
  if (!kReducedTypes.contains(input.dtype())) {
    return done(unimplemented(request.op, ": ", input.dtype(), " cannot be reduced, expected ",
                              kReducedTypes));
  }
  begin(std::move(request), input, std::move(done), [&](auto group, auto asked, auto answer) {
    return make_reduce(std::move(group), std::move(asked), input, merge, final, std::move(answer));
  });
}

void TaskCollectives::gather(Request request, Tensor input, Done done) {
  if (input.rank() == 0) {
    return done(invalid_argument(request.op, ": expected at least one dimension, got a scalar"));
  }
  begin(std::move(request), input, std::move(done), [&](auto group, auto asked, auto answer) {
    return make_gather(std::move(group), std::move(asked), input, std::move(answer));
  });
}

void TaskCollectives::broadcast_send(Request request, Tensor input, Done done) {
  begin(std::move(request), input, std::move(done), [&](auto group, auto asked, auto answer) {
    return make_broadcast(std::move(group), std::move(asked), input, input.dtype(), input.shape(),
                          std::move(answer));
  });
}

void TaskCollectives::broadcast_recv(Request request, DType dtype, Shape shape, Done done) {
  if (!is_plain(dtype)) {
    return done(unimplemented(request.op, ": expected plain elements, got ", dtype));
  }
  begin(std::move(request), Tensor(), std::move(done), [&](auto group, auto asked, auto answer) {
    return make_broadcast(std::move(group), std::move(asked), Tensor(), dtype, std::move(shape),
                          std::move(answer));
  });
}

void TaskCollectives::join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                                 UniqueFunction<void(Result<GroupView>)> done) {
  if (const std::string first = leader(); first != task_->name) {
    return done(invalid_argument("group ", request.group_key, " forms on ", first, ", not on ",
                                 task_->name));
  }
  leads_->join(std::move(request), std::move(cancel), std::move(done));
}

Result<Ref<CollectiveGroup>> TaskCollectives::find_member(const RecvChunkRequest& request) const {
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  const auto it = groups_.find({request.group_key, request.member});
  if (it != groups_.end()) return it->second;
  return aborted("group ", request.group_key, ": ", task_->name, " has no member ",
                 request.member.substr(0, 256), " in it: it was probably started again");
}

void TaskCollectives::recv_here(RecvChunkRequest request, Ref<CancellationToken> cancel,
                                CollectiveLinks::ChunkDone done) {
  Result<Ref<CollectiveGroup>> group = find_member(request);
  if (!group.ok()) return done(group.status());
  (*group)->recv_chunk(std::move(request), std::move(cancel), std::move(done));
}

void TaskCollectives::recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                                 CollectiveLinks::ChunkDone done) {
  Result<Ref<CollectiveGroup>> found = find_member(request);
  if (!found.ok()) return done(found.status());
  CollectiveGroup& group = **found;
  auto count = [task = task_, group = *std::move(found), epoch = request.epoch,
                asker = request.asker, done = std::move(done)](Result<Tensor> chunk) mutable {
    if (chunk.ok()) {
      task->counters->together_with(group->task_of(epoch, asker)).sent(chunk->bytes());
    }
    done(std::move(chunk));
  };
  group.recv_chunk(std::move(request), std::move(cancel), std::move(count));
}

Status TaskCollectives::end_group(const EndGroupRequest& request) {
  if (request.reason.ok()) {
    return invalid_argument("the end of group ", request.group_key, " needs an error as reason");
  }
  std::vector<Ref<CollectiveGroup>> groups;
  {
    MutexLock lock(mu_);
    MR_TRY(stopped_);
    for (auto it = groups_.lower_bound({request.group_key, ""});
         it != groups_.end() && it->first.first == request.group_key; ++it) {
      groups.push_back(it->second);
    }
  }
  for (const Ref<CollectiveGroup>& group : groups) {
    group->end_epoch(request.epoch, request.reason, /*tell=*/false);
  }
  leads_->end_group(request);
  return ok_status();
}

void TaskCollectives::shut_down(const Status& reason) {
  std::map<Key, Ref<CollectiveGroup>> groups;
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    groups.swap(groups_);
  }
  watch_->stop();
  for (const auto& [key, group] : groups) group->shut_down(reason);
  leads_->shut_down(reason);
}

std::vector<std::pair<int64_t, std::string>> TaskCollectives::waits() const {
  std::vector<Ref<CollectiveGroup>> groups;
  {
    MutexLock lock(mu_);
    for (const auto& [key, group] : groups_) groups.push_back(group);
  }
  std::vector<std::pair<int64_t, std::string>> out;
  for (const Ref<CollectiveGroup>& group : groups) {
    for (auto& wait : group->waits()) out.push_back(std::move(wait));
  }
  for (std::string& wait : leads_->waits()) out.emplace_back(0, std::move(wait));
  return out;
}

}  // namespace millrace
