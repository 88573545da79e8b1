#include "millrace/distributed/in_process_cluster.h"

#include <unistd.h>

#include <atomic>
#include <map>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/direct_worker.h"
#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/distributed/master.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/distributed/same_host/same_host.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

constexpr std::string_view kScheme = "inprocess";
std::atomic<int> next_socket{0};

// A place for a task's process, which may be gone for a while.
struct TaskSlot : RefCounted {
  using Transport = InProcessCluster::Transport;
  // Where a worker listens.
  struct Listener {
    std::unique_ptr<SameHostServer> same_host;
    std::unique_ptr<GrpcServer> grpc;
  };

  TaskSlot(std::string name, Transport transport)
      : name(std::move(name)),
        transport(transport),
        socket(str_cat("millrace-", getpid(), "-", next_socket++)) {}

  const std::string name;
  const Transport transport;
  const std::string socket;
  mutable Mutex mu;
  Ref<Worker> worker MR_GUARDED_BY(mu);
  Listener listener MR_GUARDED_BY(mu);
  int port MR_GUARDED_BY(mu) = 0;  // of gRPC, from the first worker on

  Status unreachable() const {
    return unavailable("task ", name, " cannot be reached: it has stopped");
  }
  Result<Ref<Worker>> get() const {
    MutexLock lock(mu);
    if (worker) return worker;
    return unreachable();
  }
  // Ends the old worker, if any, as if its process died.
  Status replace(Ref<Worker> next) {
    Listener old_listener;
    Ref<Worker> old;
    {
      MutexLock lock(mu);
      std::swap(worker, old);
      std::swap(listener, old_listener);
    }
    old_listener = {};
    if (old) old->shut_down(unreachable());
    if (!next) return ok_status();
    MR_TRY_ASSIGN(Listener next_listener, listen(next));
    MutexLock lock(mu);
    worker = std::move(next);
    listener = std::move(next_listener);
    if (listener.grpc) port = listener.grpc->port();
    return ok_status();
  }

  // How others reach the workers that stand here, after the first came.
  Result<Ref<WorkerInterface>> way() {
    const std::string peer = str_cat("task ", name);
    switch (transport) {
      case Transport::kSameHost:
        return make_remote_worker(make_same_host_channel(socket, peer));
      case Transport::kGrpc: {
        MutexLock lock(mu);
        MR_TRY_ASSIGN(Ref<Channel> channel, make_grpc_channel(str_cat("127.0.0.1:", port), peer));
        return make_remote_worker(std::move(channel));
      }
      case Transport::kDirect:
        break;
    }
    return make_direct_worker([self = Ref<TaskSlot>(this)] { return self->get(); });
  }

 private:
  Result<Listener> listen(const Ref<Worker>& next) const {
    Listener out;
    if (transport == Transport::kSameHost) {
      MR_TRY_ASSIGN(out.same_host, SameHostServer::start(socket, make_worker_service(next)));
    } else if (transport == Transport::kGrpc) {
      int same = 0;
      {
        MutexLock lock(mu);
        same = port;
      }
      MR_TRY_ASSIGN(out.grpc,
                    GrpcServer::start(str_cat("127.0.0.1:", same), make_worker_service(next)));
    }
    return out;
  }
};

}  // namespace

struct InProcessCluster::Impl {
  std::string name;
  int cpu_devices = 1;
  Ref<Timer> timer;  // of the tasks
  ClusterSpec spec;
  Ref<WorkerCache> workers = make_ref<WorkerCache>();
  std::map<std::string, Ref<TaskSlot>, std::less<>> tasks;

  // Workers and the cache know each other; a stopped task knows nobody.
  ~Impl() {
    for (auto& [task, slot] : tasks) MR_CHECK_OK(slot->replace(nullptr));
  }

  Result<Ref<TaskSlot>> find(std::string_view task) const {
    if (auto it = tasks.find(task); it != tasks.end()) return it->second;
    return not_found("no task ", task, " in cluster \"", name, "\"; there are ",
                     str_join(spec.task_names(), ", "));
  }

  Result<Ref<Worker>> make_worker(const std::string& task) {
    MR_TRY_ASSIGN(DeviceName device, DeviceName::parse(task));
    MR_TRY_ASSIGN(std::vector<Ref<Device>> devices, make_cpu_devices(device, cpu_devices));
    return Worker::create(task, std::move(devices), workers, timer);
  }
};

namespace {

struct Clusters {
  Mutex mu;
  // The workers and first task by name.
  struct Entry {
    Ref<WorkerCache> workers;
    std::string first_task;
    Ref<Timer> timer;  // of masters
  };
  std::map<std::string, Entry, std::less<>> by_name MR_GUARDED_BY(mu);
};

Clusters& clusters() {
  static Clusters* all = new Clusters;
  return *all;
}

Result<Ref<SessionBackend>> make_backend(const SessionOptions& options) {
  std::string_view rest = options.target;
  rest.remove_prefix(kScheme.size() + std::string_view("://").size());
  std::string_view name = rest.substr(0, rest.find('/'));
  rest.remove_prefix(name.size());
  MasterOptions master;
  master.device_filters = options.device_filters;
  master.kernel_label = options.kernel_label;
  master.scope = {.rights = options.rights, .isolated = options.isolate_state};
  Ref<WorkerCache> workers;
  {
    Clusters& all = clusters();
    MutexLock lock(all.mu);
    auto it = all.by_name.find(name);
    if (it == all.by_name.end()) {
      return not_found("no cluster \"", name, "\" in this process, for target ", options.target);
    }
    workers = it->second.workers;
    master.task = it->second.first_task;
    master.timer = it->second.timer;
  }
  if (!rest.empty()) {
    MR_TRY_ASSIGN(DeviceName task, DeviceName::parse(rest));
    if (!task.job || !task.task) {
      return invalid_argument("target ", options.target, ": expected a job and a task, got ", rest);
    }
    master.task = task_name(*task.job, *task.task);
  }
  return make_master_backend(std::move(workers), master);
}

Status register_scheme() {
  static const Status* status = new Status(register_session_backend(kScheme, make_backend));
  return *status;
}

}  // namespace

InProcessCluster::InProcessCluster(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<InProcessCluster>> InProcessCluster::create(const Options& options) {
  MR_TRY(register_scheme());
  if (options.name.empty() || options.name.find('/') != std::string::npos) {
    return invalid_argument("expected a cluster name without \"/\", got \"", options.name, "\"");
  }
  auto impl = std::make_shared<Impl>();
  impl->name = options.name;
  impl->cpu_devices = options.cpu_devices;
  impl->timer = options.worker_timer;
  for (const auto& [job, count] : options.jobs) {
    if (count < 1 || count > 1024) {
      return invalid_argument("job ", job, ": expected 1 to 1024 tasks, got ", count);
    }
    for (int task = 0; task < count; ++task) {
      MR_TRY(impl->spec.add(job, task, str_cat(options.name, task_name(job, task))));
    }
  }
  std::vector<std::string> names = impl->spec.task_names();
  if (names.empty()) return invalid_argument("cluster \"", options.name, "\" has no tasks");
  for (const std::string& task : names) {
    const Ref<TaskSlot> slot = make_ref<TaskSlot>(task, options.transport);
    impl->tasks.emplace(task, slot);
    MR_TRY_ASSIGN(Ref<Worker> worker, impl->make_worker(task));
    MR_TRY(slot->replace(std::move(worker)));
    MR_TRY_ASSIGN(Ref<WorkerInterface> way, slot->way());
    MR_TRY(impl->workers->add(task, std::move(way)));
  }
  std::string first = task_name(options.jobs[0].first, 0);
  Clusters& all = clusters();
  MutexLock lock(all.mu);
  if (!all.by_name
           .try_emplace(options.name, Clusters::Entry{impl->workers, first, options.master_timer})
           .second) {
    return already_exists("a cluster \"", options.name, "\" exists in this process");
  }
  return std::unique_ptr<InProcessCluster>(new InProcessCluster(std::move(impl)));
}

InProcessCluster::~InProcessCluster() {
  Clusters& all = clusters();
  MutexLock lock(all.mu);
  all.by_name.erase(impl_->name);
}

const ClusterSpec& InProcessCluster::spec() const { return impl_->spec; }
const Ref<WorkerCache>& InProcessCluster::workers() const { return impl_->workers; }

Status InProcessCluster::stop(std::string_view task) {
  MR_TRY_ASSIGN(Ref<TaskSlot> slot, impl_->find(task));
  return slot->replace(nullptr);
}

Status InProcessCluster::restart(std::string_view task) {
  MR_TRY_ASSIGN(Ref<TaskSlot> slot, impl_->find(task));
  MR_TRY_ASSIGN(Ref<Worker> worker, impl_->make_worker(slot->name));
  return slot->replace(std::move(worker));
}

Result<Ref<Worker>> InProcessCluster::worker(std::string_view task) const {
  MR_TRY_ASSIGN(Ref<TaskSlot> slot, impl_->find(task));
  return slot->get();
}

}  // namespace millrace
