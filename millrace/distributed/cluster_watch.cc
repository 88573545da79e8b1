#include "millrace/distributed/cluster_watch.h"

#include <algorithm>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/distributed/network.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/distributed/task_service.h"

namespace millrace {
namespace {

constexpr std::string_view kScheme = "grpc://";
constexpr int64_t kDescribeTimeoutMs = 10'000;

}  // namespace

Result<Ref<ClusterWatch>> ClusterWatch::begin(std::string_view target) {
  if (!target.starts_with(kScheme)) {
    return invalid_argument("expected a target \"grpc://host:port\", got \"", target, "\"");
  }
  const std::string_view address = target.substr(kScheme.size());
  MR_TRY_ASSIGN(const Network network, Network::from_environment());
  const Ref<Channel> channel = network.connect(address, str_cat("the server at ", address));
  MR_TRY_ASSIGN(const TaskDescription described, ask_task(*channel, kDescribeTimeoutMs));
  Ref<ClusterWatch> watch = make_ref<ClusterWatch>();
  MutexLock lock(watch->mu_);
  for (const std::string& name : described.cluster.task_names()) {
    Watched& task = watch->tasks_.emplace_back();
    task.name = name;
    MR_TRY_ASSIGN(task.address, described.cluster.address(name));
    // The one that is known is asked where it was found: its own address may be no one's here.
    task.worker = make_remote_worker(
        name == described.task
            ? channel
            : network.connect(task.address, str_cat("task ", name, " at ", task.address)));
    task.last_ns = monotonic_nanos();
  }
  return watch;
}

void ClusterWatch::ask(size_t i) {
  Ref<WorkerInterface> worker;
  {
    MutexLock lock(mu_);
    if (tasks_[i].asked) return;
    tasks_[i].asked = true;
    worker = tasks_[i].worker;
  }
  worker->get_activity(0, [self = Ref<ClusterWatch>(this), i](Result<WorkerActivity> activity) {
    MutexLock lock(self->mu_);
    Watched& task = self->tasks_[i];
    task.asked = false;
    task.fresh = true;
    task.status = activity.status();
    // Who refuses to say what it does is there.
    if (task.status.code() != Code::kUnavailable) task.last_ns = monotonic_nanos();
    if (activity.ok()) task.activity = *std::move(activity);
    self->changed_.notify_all();
  });
}

std::vector<ClusterWatch::Task> ClusterWatch::look(int64_t timeout_ms) {
  size_t count;
  {
    MutexLock lock(mu_);
    count = tasks_.size();
    for (Watched& task : tasks_) task.fresh = false;
  }
  for (size_t i = 0; i < count; ++i) ask(i);
  const Deadline deadline = Deadline::after_millis(timeout_ms);
  std::vector<Task> out;
  MutexLock lock(mu_);
  const auto all_fresh = [this]() MR_REQUIRES(mu_) {
    return std::all_of(tasks_.begin(), tasks_.end(), [](const Watched& t) { return t.fresh; });
  };
  while (!all_fresh() && !deadline.expired()) changed_.wait_until(mu_, deadline);
  const int64_t now = monotonic_nanos();
  for (const Watched& watched : tasks_) {
    Task& task = out.emplace_back();
    task.name = watched.name;
    task.address = watched.address;
    task.status = watched.fresh ? watched.status
                                : deadline_exceeded(watched.name, " has not answered within ",
                                                    timeout_ms, " ms");
    if (task.status.ok()) {
      task.activity = watched.activity;
    } else {
      task.away_ms = (now - watched.last_ns) / 1'000'000;
    }
  }
  return out;
}

}  // namespace millrace
