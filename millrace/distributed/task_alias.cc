#include "millrace/distributed/task_alias.h"

#include <algorithm>

#include "millrace/base/clock.h"
#include "millrace/base/file_access.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/distributed/rpc/worker_wire.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

constexpr std::string_view kJoin = "Join";
constexpr std::string_view kWorkerPrefix = "/millrace.Worker/";
constexpr size_t kIdDigits = 16;

// What a server says that knows nothing of the alias.
Status unknown_alias(std::string_view id) {
  return not_found("no session has brought the cluster ", id, " here");
}

class AliasChannel final : public Channel {
 public:
  AliasChannel(Ref<Channel> channel, std::string id, const TaskDescription& description)
      : channel_(std::move(channel)), id_(std::move(id)), description_(to_message(description)) {}

  std::string peer() const override { return channel_->peer(); }

  void call(std::string_view method, Message request, Ref<CancellationToken> cancel,
            CallDone done) override {
    std::string name = full_name(method.substr(std::min(method.size(), kWorkerPrefix.size())));
    if (method == worker_wire::kGetStatus) {
      return join_and_call(std::move(name), std::move(request), std::move(cancel), std::move(done));
    }
    if (method != worker_wire::kRegisterGraph) {
      return channel_->call(name, std::move(request), std::move(cancel), std::move(done));
    }
    Message again = request;
    channel_->call(name, std::move(request), cancel,
                   [self = Ref<AliasChannel>(this), name, cancel, again = std::move(again),
                    done = std::move(done)](Status status, Message answer) mutable {
                     if (status != unknown_alias(self->id_)) {
                       return done(std::move(status), std::move(answer));
                     }
                     self->join_and_call(std::move(name), std::move(again), std::move(cancel),
                                         std::move(done));
                   });
  }

 private:
  std::string full_name(std::string_view name) const {
    return str_cat(kAliasPrefix, id_, "/", name);
  }

  void join_and_call(std::string name, Message request, Ref<CancellationToken> cancel,
                     CallDone done) {
    channel_->call(
        full_name(kJoin), description_, cancel,
        [self = Ref<AliasChannel>(this), name = std::move(name), cancel,
         request = std::move(request), done = std::move(done)](Status status, Message) mutable {
          if (!status.ok()) return done(std::move(status), Message());
          self->channel_->call(name, std::move(request), std::move(cancel), std::move(done));
        });
  }

  const Ref<Channel> channel_;
  const std::string id_;
  const Message description_;
};

bool is_id(std::string_view text) {
  return text.size() == kIdDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Adds what was counted to what others have counted: one row for each peer and kind.
void add_counts(const WorkerActivity& from, WorkerActivity& to) {
  to.steps_begun += from.steps_begun;
  to.steps_ended += from.steps_ended;
  to.steps_failed += from.steps_failed;
  for (const WorkerActivity::Transfer& in : from.transfers) {
    const auto row = std::find_if(to.transfers.begin(), to.transfers.end(), [&](const auto& known) {
      return known.peer == in.peer && known.kind == in.kind;
    });
    if (row == to.transfers.end()) {
      to.transfers.push_back(in);
    } else {
      row->received_bytes += in.received_bytes;
      row->sent_bytes += in.sent_bytes;
    }
  }
}

}  // namespace

Ref<Channel> make_alias_channel(Ref<Channel> channel, std::string id,
                                const TaskDescription& description) {
  return make_ref<AliasChannel>(std::move(channel), std::move(id), description);
}

Result<Ref<WorkerCache>> alias_workers(const ClusterSpec& cluster, const std::string& id,
                                       const Network& network, std::string_view left_out) {
  Ref<WorkerCache> workers = make_ref<WorkerCache>();
  for (const std::string& name : cluster.task_names()) {
    if (name == left_out) continue;
    MR_TRY_ASSIGN(const std::string address, cluster.address(name));
    Ref<Channel> channel = network.connect(address, str_cat("task ", name, " at ", address));
    MR_TRY(workers->add(
        name, make_remote_worker(make_alias_channel(std::move(channel), id, {name, cluster}))));
  }
  return workers;
}

TaskAliases::TaskAliases(std::vector<Ref<Device>> devices, const Network& network,
                         const ServerLimits& limits)
    : devices_(std::move(devices)), network_(network), limits_(limits) {}

TaskAliases::~TaskAliases() { shut_down(cancelled("the server has ended")); }

void TaskAliases::handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
                         CallDone done) {
  method.remove_prefix(std::min(method.size(), kAliasPrefix.size()));
  const size_t slash = method.find('/');
  const std::string id(method.substr(0, slash));
  if (slash == std::string_view::npos || !is_id(id)) {
    return done(invalid_argument("expected ", kAliasPrefix, "<", kIdDigits,
                                 " hexadecimal digits>/<method>, got ", kAliasPrefix, method),
                Message());
  }
  const std::string_view name = method.substr(slash + 1);
  if (name == kJoin) return done(join(id, request), Message());
  const Ref<Alias> alias = find(id);
  if (!alias) return done(unknown_alias(id), Message());
  const std::string worker_method = str_cat(kWorkerPrefix, name);
  if (worker_method == worker_wire::kDeleteSession) {
    done = [self = Ref<TaskAliases>(this), id, done = std::move(done)](Status status,
                                                                       Message answer) mutable {
      self->forget_idle(id);
      done(std::move(status), std::move(answer));
    };
  }
  alias->service->handle(worker_method, std::move(request), std::move(cancel), std::move(done));
}

Ref<TaskAliases::Alias> TaskAliases::find(const std::string& id) const {
  MutexLock lock(mu_);
  const auto it = aliases_.find(id);
  return it == aliases_.end() ? nullptr : it->second;
}

Status TaskAliases::join(const std::string& id, const Message& request) {
  MR_TRY_ASSIGN(TaskDescription description, read_task_description(request));
  forget_idle("");
  MR_TRY_ASSIGN(Ref<Alias> alias, make_alias(id, std::move(description)));
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  const auto known = aliases_.find(id);
  if (known != aliases_.end()) {
    const TaskDescription& before = known->second->description;
    const TaskDescription& now = alias->description;
    if (before.task == now.task && before.cluster.to_string() == now.cluster.to_string()) {
      return ok_status();
    }
    return invalid_argument("the server is ", before.task, " of cluster ", id, ", not ", now.task);
  }
  if (aliases_.size() >= static_cast<size_t>(limits_.sessions)) {
    return resource_exhausted("the server is a task of ", limits_.sessions,
                              " clusters that sessions brought, as many as "
                              "MILLRACE_CLUSTER_MAX_SESSIONS allows it");
  }
  aliases_.emplace(id, std::move(alias));
  return ok_status();
}

Result<Ref<TaskAliases::Alias>> TaskAliases::make_alias(const std::string& id,
                                                        TaskDescription description) const {
  Ref<Alias> alias = make_ref<Alias>();
  MR_TRY_ASSIGN(const DeviceName task, DeviceName::parse(description.task));
  std::vector<Ref<Device>> devices;
  for (const Ref<Device>& device : devices_) {
    if (device->kind() != DeviceKind::kCpu) {
      return unimplemented("a cluster that a session brings has CPUs alone, and ", device->name(),
                           " is none");
    }
    DeviceName name = device->info().name;
    name.job = task.job;
    name.task = task.task;
    MR_TRY_ASSIGN(Ref<Device> renamed,
                  make_cpu_device(name, Ref<ResourceManager>(&device->resources()),
                                  device->info().incarnation));
    // The device's own are not handed out to be changed, and are not changed here.
    renamed->set_files(Ref<FileAccess>(const_cast<FileAccess*>(&device->files())));
    devices.push_back(std::move(renamed));
  }
  MR_TRY_ASSIGN(Ref<WorkerCache> peers,
                alias_workers(description.cluster, id, network_, description.task));
  MR_TRY_ASSIGN(alias->worker,
                Worker::create(description.task, std::move(devices), std::move(peers)));
  alias->service = make_worker_service(alias->worker);
  alias->description = std::move(description);
  alias->made_ns = monotonic_nanos();
  return alias;
}

void TaskAliases::tell(int64_t step_id, WorkerActivity& out) const {
  std::vector<Ref<Alias>> aliases;
  {
    MutexLock lock(mu_);
    for (const auto& [id, alias] : aliases_) aliases.push_back(alias);
    if (step_id == 0) add_counts(forgotten_, out);
  }
  for (const Ref<Alias>& alias : aliases) {
    WorkerActivity told = alias->worker->activity(step_id);
    std::move(told.sessions.begin(), told.sessions.end(), std::back_inserter(out.sessions));
    std::move(told.steps.begin(), told.steps.end(), std::back_inserter(out.steps));
    add_counts(told, out);
  }
}

void TaskAliases::forget_idle(const std::string& ended) {
  const int64_t lease_ns = lease_ms_for(lost_after_ms()) * 1'000'000;
  std::vector<Ref<Alias>> dropped;
  {
    MutexLock lock(mu_);
    const int64_t now = monotonic_nanos();
    WorkerActivity counted;
    std::erase_if(aliases_, [&](auto& entry) {
      const Alias& alias = *entry.second;
      const bool waits = entry.first != ended && now - alias.made_ns < lease_ns;
      if (waits) return false;
      WorkerActivity told = alias.worker->activity(0);
      if (!told.sessions.empty()) return false;
      // Their names are whatever sessions brought: no list of them grows.
      for (WorkerActivity::Transfer& transfer : told.transfers) {
        if (transfer.peer != TaskCounters::kMaster) transfer.peer = TaskCounters::kOther;
      }
      add_counts(told, counted);
      dropped.push_back(std::move(entry.second));
      return true;
    });
    add_counts(counted, forgotten_);
  }
  for (const Ref<Alias>& alias : dropped) {
    alias->worker->shut_down(aborted("the session of ", alias->worker->task(), " has ended"));
  }
}

void TaskAliases::shut_down(const Status& reason) {
  std::map<std::string, Ref<Alias>> all;
  {
    MutexLock lock(mu_);
    stopped_ = reason;
    all.swap(aliases_);
  }
  for (const auto& [id, alias] : all) alias->worker->shut_down(reason);
}

}  // namespace millrace
