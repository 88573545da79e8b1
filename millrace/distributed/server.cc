#include "millrace/distributed/server.h"

#include <google/protobuf/stubs/logging.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>
#include <vector>

#include "millrace/base/hex.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/call_group.h"
#include "millrace/distributed/collective/mpi/mpi_collectives.h"
#include "millrace/distributed/direct_worker.h"
#include "millrace/distributed/forwarding_worker.h"
#include "millrace/distributed/master.h"
#include "millrace/distributed/master_service.h"
#include "millrace/distributed/metrics.h"
#include "millrace/distributed/metrics_port.h"
#include "millrace/distributed/narrowed_worker.h"
#include "millrace/distributed/network.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/distributed/task_alias.h"
#include "millrace/distributed/task_port.h"
#include "millrace/distributed/task_service.h"
#include "millrace/distributed/waiting_calls.h"
#include "millrace/kernel/collectives.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/session/session_backend.h"

namespace millrace {

struct ServerTask : RefCounted {
  ClusterSpec cluster;
  std::string job;
  std::string name;
  std::string address;
  std::vector<Ref<Device>> devices;
  Ref<WorkerCache> peers;  // the other tasks
  Ref<Worker> worker;
  Ref<TaskAliases> aliases;          // what it is to sessions that bring their cluster
  Ref<MasterService> master;         // what TensorFlow's clients ask
  Ref<MasterService> others_master;  // the same for those who may reach less
  std::unique_ptr<TaskPort> port;
  std::unique_ptr<MetricsPort> metrics;  // null: nobody asked for it
};

namespace {

constexpr std::string_view kScheme = "grpc";
constexpr int64_t kDescribeTimeoutMs = 10'000;
// From the answer to who tells a task to end until it does: the answer is on its way by then.
constexpr int64_t kStopDelayNs = 200'000'000;

void end_this_process() {
  real_timer()->schedule(kStopDelayNs, [] { kill(getpid(), SIGTERM); });
}

// What libprotobuf has to say is about bytes of peers, whose errors go to them.
void silence_protobuf() {
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel, const char* file, int line, const std::string& text) {
        MR_VLOG("libprotobuf, ", file, ":", line, ": ", text);
      });
}

struct Servers {
  Mutex mu;
  std::map<std::string, Ref<ServerTask>, std::less<>> by_address MR_GUARDED_BY(mu);
};

Servers& servers() {
  static Servers* all = new Servers;
  return *all;
}

// Null when there is none.
Ref<ServerTask> server_at(std::string_view address) {
  Servers& all = servers();
  MutexLock lock(all.mu);
  const auto it = all.by_address.find(address);
  return it == all.by_address.end() ? nullptr : it->second;
}

// What a server's task tells, and what it tells as the tasks that it is to sessions which brought
// their clusters.
WorkerActivity activity_of(const Worker& worker, const TaskAliases& aliases) {
  WorkerActivity out = worker.activity(0);
  aliases.tell(0, out);
  return out;
}

// A server's task as it is called: it tells of its aliases too.
class ServerWorker final : public ForwardingWorker {
 public:
  ServerWorker(Ref<Worker> worker, Ref<TaskAliases> aliases)
      : worker_(std::move(worker)), aliases_(std::move(aliases)) {}

  void get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) override {
    worker_->get_activity(step_id, [aliases = aliases_, step_id, done = std::move(done)](
                                       Result<WorkerActivity> activity) mutable {
      if (activity.ok()) aliases->tell(step_id, *activity);
      done(std::move(activity));
    });
  }

 protected:
  Result<Ref<WorkerInterface>> find_worker() const override {
    return Ref<WorkerInterface>(worker_);
  }

 private:
  const Ref<Worker> worker_;
  const Ref<TaskAliases> aliases_;
};

// How all tasks of a cluster but `own` are reached.
Result<Ref<WorkerCache>> peers_of(const TaskDescription& own, const Network& network) {
  Ref<WorkerCache> peers = make_ref<WorkerCache>();
  for (const std::string& name : own.cluster.task_names()) {
    if (name == own.task) continue;
    MR_TRY_ASSIGN(const std::string address, own.cluster.address(name));
    Ref<Channel> channel = network.connect(address, str_cat("task ", name, " at ", address));
    MR_TRY(peers->add(name, make_remote_worker(std::move(channel))));
  }
  return peers;
}

std::string_view address_of(std::string_view target) {
  return target.substr(std::min(target.size(), kScheme.size() + 3));
}

// The tasks that a session begun at `own` uses, `own` first, where all are of this process; none
// otherwise.
Result<std::vector<Ref<ServerTask>>> tasks_here(const Ref<ServerTask>& own,
                                                const std::vector<std::string>& device_filters) {
  MR_TRY_ASSIGN(const DeviceFilters filters, DeviceFilters::parse(device_filters));
  std::vector<Ref<ServerTask>> tasks = {own};
  for (const std::string& name : own->cluster.task_names()) {
    if (name == own->name) continue;
    MR_TRY_ASSIGN(const DeviceName device, DeviceName::parse(name));
    if (!filters.keep(device)) continue;
    MR_TRY_ASSIGN(const std::string where, own->cluster.address(name));
    Ref<ServerTask> task = server_at(where);
    if (!task || task->name != name) return std::vector<Ref<ServerTask>>();
    tasks.push_back(std::move(task));
  }
  return tasks;
}

// A master in this process over tasks of which some are elsewhere. `own`: the server at the target
// where it is of this process; null otherwise.
Result<Ref<SessionBackend>> make_master(const Ref<ServerTask>& own, const SessionOptions& options) {
  MasterOptions master;
  master.device_filters = options.device_filters;
  master.kernel_label = options.kernel_label;
  master.scope = {.rights = options.rights, .isolated = options.isolate_state};
  Ref<WorkerCache> workers = make_ref<WorkerCache>();
  if (own) {
    master.task = own->name;
    for (const std::string& task : own->peers->tasks()) {
      MR_TRY_ASSIGN(Ref<WorkerInterface> peer, own->peers->find(task));
      MR_TRY(workers->add(task, std::move(peer)));
    }
    MR_TRY(workers->add(own->name, make_direct_worker([worker = own->worker] {
                          return Result<Ref<Worker>>(worker);
                        })));
  } else {
    const std::string_view address = address_of(options.target);
    MR_TRY_ASSIGN(const Network network, Network::from_environment());
    const Ref<Channel> channel = network.connect(address, str_cat("the server at ", address));
    MR_TRY_ASSIGN(const TaskDescription described, ask_task(*channel, kDescribeTimeoutMs));
    master.task = described.task;
    MR_TRY_ASSIGN(workers, peers_of(described, network));
    MR_TRY(workers->add(described.task, make_remote_worker(channel)));
  }
  return make_master_backend(std::move(workers), master);
}

Status check_port(std::string_view address) {
  const size_t colon = address.rfind(':');
  const std::string_view port = colon == std::string_view::npos ? "" : address.substr(colon + 1);
  if (!port.empty() && port.size() <= 5 &&
      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return ok_status();
  }
  return invalid_argument("could not interpret \"", address,
                          "\" as a host-port pair: expected \"host:port\"");
}

// A master in this process over the tasks of a cluster that the session brings.
Result<Ref<SessionBackend>> make_own_master(const SessionOptions& options) {
  if (!options.rights.all()) {
    return permission_denied(
        "cluster_def is for those who may do everything on this server: its own user, and who has "
        "the cluster's token or certificates");
  }
  ClusterSpec cluster;
  MasterOptions master;
  const std::string_view own = address_of(options.target);
  for (const SessionTask& task : options.cluster) {
    MR_TRY(check_port(task.address));
    MR_TRY(cluster.add(task.job, task.number, task.address));
    const bool here = task.address == own || task.address == address_of(options.asked_target);
    if (here) master.task = task_name(task.job, task.number);
  }
  if (master.task.empty()) {
    return invalid_argument("expected a task of the cluster_def at ", own,
                            ", where the session begins; it has ", cluster.to_string());
  }
  master.device_filters = options.device_filters;
  master.kernel_label = options.kernel_label;
  master.scope = {.rights = options.rights, .isolated = options.isolate_state};
  MR_TRY_ASSIGN(const Network network, Network::from_environment());
  MR_TRY_ASSIGN(Ref<WorkerCache> workers,
                alias_workers(cluster, hex_digits(random_incarnation()), network));
  return make_master_backend(std::move(workers), master);
}

Result<Ref<SessionBackend>> make_backend(const SessionOptions& options) {
  if (options.files) {
    return invalid_argument("files are a server's to narrow, not those of a session on it");
  }
  if (!options.cluster.empty()) return make_own_master(options);
  const Ref<ServerTask> own = server_at(address_of(options.target));
  if (!own) return make_master(nullptr, options);
  MR_TRY_ASSIGN(const auto tasks, tasks_here(own, options.device_filters));
  if (tasks.empty()) return make_master(own, options);
  std::vector<Ref<Device>> devices;
  for (const Ref<ServerTask>& task : tasks) {
    devices.insert(devices.end(), task->devices.begin(), task->devices.end());
  }
  const SessionScope scope = {.rights = options.rights, .isolated = options.isolate_state};
  if (!scope.own_devices()) return make_local_backend(std::move(devices), options);
  MR_TRY_ASSIGN(devices, make_session_devices(devices, scope.rights));
  SessionOptions own_devices = options;
  own_devices.rights = scope.node_rights();
  own_devices.isolate_state = true;
  return make_local_backend(std::move(devices), own_devices);
}

}  // namespace

Server::Server(Ref<ServerTask> task) : task_(std::move(task)) {}

Result<std::unique_ptr<Server>> Server::start(const Options& options) {
  MR_TRY(register_targets());
  silence_protobuf();
  Ref<ServerTask> task = make_ref<ServerTask>();
  task->job = options.job;
  task->name = task_name(options.job, options.task);
  MR_TRY_ASSIGN(task->address, options.cluster.address(task->name));
  MR_TRY_ASSIGN(const DeviceName device, DeviceName::parse(task->name));
  for (const auto& [job, tasks] : options.cluster.jobs()) {
    for (const auto& [number, address] : tasks) MR_TRY(check_port(address));
  }
  const auto could_not = [&](const Status& status) {
    return unknown("could not start the server of ", task->name, " at ", task->address, ": ",
                   status.message());
  };
  MR_TRY_ASSIGN(const Network network, Network::from_environment());
  task->address = network.now_at(task->address);
  Result<std::unique_ptr<TaskPort>> port = TaskPort::take(task->address, network);
  if (!port.ok()) return could_not(port.status());
  task->port = *std::move(port);
  task->address = task->port->address();
  for (const auto& [job, tasks] : options.cluster.jobs()) {
    for (const auto& [number, address] : tasks) {
      const bool own = task_name(job, number) == task->name;
      MR_TRY(task->cluster.add(job, number, own ? task->address : address));
    }
  }
  const TaskDescription description = {task->name, task->cluster};
  MR_TRY_ASSIGN(task->peers, peers_of(description, network));
  MR_TRY_ASSIGN(task->devices, make_cpu_devices(device, options.cpu_devices));
  for (const Ref<Device>& d : task->devices) {
    if (options.files) d->set_files(options.files);
  }
  MR_TRY_ASSIGN(task->worker, Worker::create(task->name, task->devices, task->peers));
  task->worker->choose_collectives(choose_collectives(task->worker->collectives(), task->name));
  const ServerLimits limits = ServerLimits::from_environment();
  task->aliases = make_ref<TaskAliases>(task->devices, network, limits);
  const Ref<WaitingCalls> waiting = make_ref<WaitingCalls>(limits);
  const Ref<WorkerInterface> called = make_ref<ServerWorker>(task->worker, task->aliases);
  const auto make_service = [&](const GraphRights& rights) {
    return MasterService::create(
        {.target = str_cat(kScheme, "://", task->address),
         .task = task->name,
         .config = options.config,
         .rights = rights,
         .max_sessions = limits.sessions,
         .max_sessions_per_client = limits.sessions_per_client,
         .max_graph_bytes = limits.graph_bytes,
         .next = make_limited_service(
             make_task_service(description, make_narrowed_worker(called, rights),
                               rights.all() ? end_this_process : nullptr,
                               rights.all() ? task->aliases : nullptr),
             waiting)});
  };
  MR_TRY_ASSIGN(task->master, make_service(GraphRights()));
  task->others_master = task->master;
  if (const GraphRights rights = network.rights_of_others(); !rights.all()) {
    MR_TRY_ASSIGN(task->others_master, make_service(rights));
  }
  if (options.metrics_port >= 0) {
    auto metrics =
        MetricsPort::open(MetricsPort::Options::of(network, task->address, options.metrics_port),
                          [worker = task->worker, aliases = task->aliases] {
                            return metrics_text(worker->task(), activity_of(*worker, *aliases));
                          });
    if (!metrics.ok()) return could_not(metrics.status());
    task->metrics = *std::move(metrics);
  }
  if (const Status status = task->port->open(task->master, task->others_master); !status.ok()) {
    return could_not(status);
  }
  Servers& all = servers();
  MutexLock lock(all.mu);
  if (!all.by_address.try_emplace(task->address, task).second) {
    return unknown("could not start the server of ", task->name, ": ", task->address,
                   " is another server's of this process");
  }
  provide_collectives(task->name, task->worker->chosen_collectives());
  return std::unique_ptr<Server>(new Server(std::move(task)));
}

Server::~Server() {
  {
    Servers& all = servers();
    MutexLock lock(all.mu);
    all.by_address.erase(task_->address);
  }
  withdraw_collectives(*task_->worker->chosen_collectives());
  task_->master->shut_down();
  task_->others_master->shut_down();
  task_->port.reset();
  task_->aliases->shut_down(unavailable("task ", task_->name, " has ended"));
  task_->metrics.reset();
  task_->worker->shut_down(unavailable("task ", task_->name, " has ended"));
  // State may hold what holds the device.
  for (const Ref<Device>& device : task_->devices) device->resources().clear();
}

const std::string& Server::address() const { return task_->address; }

std::string Server::metrics_url() const { return task_->metrics ? task_->metrics->url() : ""; }

Status Server::register_targets() {
  static const Status* status = new Status(register_session_backend(kScheme, make_backend));
  return *status;
}

Result<WorkerActivity> Server::activity(std::string_view target) {
  const std::string_view address = address_of(target);
  if (const Ref<ServerTask> own = server_at(address))
    return activity_of(*own->worker, *own->aliases);
  struct Answer : RefCounted {
    Mutex mu;
    WorkerActivity activity MR_GUARDED_BY(mu);
  };
  const Ref<Answer> answer = make_ref<Answer>();
  const std::string peer = str_cat("the server at ", address);
  const Ref<CallGroup> group = make_ref<CallGroup>("get_activity");
  group->expect(peer);
  MR_TRY_ASSIGN(const Network network, Network::from_environment());
  const Ref<WorkerInterface> worker = make_remote_worker(network.connect(address, peer));
  worker->get_activity(0, [answer, group, peer](Result<WorkerActivity> activity) {
    if (activity.ok()) {
      MutexLock lock(answer->mu);
      answer->activity = *activity;
    }
    group->answer(peer, activity.status());
  });
  MR_TRY(group->wait(kDescribeTimeoutMs));
  MutexLock lock(answer->mu);
  return answer->activity;
}

Status Server::stop_cluster(std::string_view target) {
  const std::string_view address = address_of(target);
  MR_TRY_ASSIGN(const Network network, Network::from_environment());
  TaskDescription cluster;
  if (const Ref<ServerTask> own = server_at(address)) {
    cluster = {own->name, own->cluster};
  } else {
    const Ref<Channel> channel = network.connect(address, str_cat("the server at ", address));
    MR_TRY_ASSIGN(cluster, ask_task(*channel, kDescribeTimeoutMs));
  }
  const Ref<CallGroup> group = make_ref<CallGroup>("stop");
  const std::vector<std::string> names = cluster.cluster.task_names();
  for (const std::string& name : names) group->expect(name);
  for (const std::string& name : names) {
    MR_TRY_ASSIGN(const std::string where, cluster.cluster.address(name));
    const Ref<Channel> channel = network.connect(where, str_cat("task ", name, " at ", where));
    // The channel lives until it has answered.
    stop_task(*channel,
              [group, name, channel](Status status) { group->answer(name, std::move(status)); });
  }
  return group->wait(kDescribeTimeoutMs);
}

Status Server::reset(std::string_view target, std::span<const std::string> containers,
                     const std::vector<std::string>& device_filters) {
  const Ref<ServerTask> own = server_at(address_of(target));
  std::vector<Ref<ServerTask>> tasks;
  if (own) {
    MR_TRY_ASSIGN(tasks, tasks_here(own, device_filters));
  }
  if (tasks.empty()) {
    SessionOptions options;
    options.target = target;
    options.device_filters = device_filters;
    MR_TRY_ASSIGN(const auto backend, make_master(own, options));
    return backend->reset(containers);
  }
  for (const Ref<ServerTask>& task : tasks) {
    for (const Ref<Device>& device : task->devices) {
      ResourceManager& resources = device->resources();
      if (containers.empty()) resources.clear_container(ResourceManager::kDefaultContainer);
      for (const std::string& container : containers) {
        const bool by_job = container == task->job;
        resources.clear_container(by_job ? ResourceManager::kDefaultContainer : container);
      }
    }
  }
  return ok_status();
}

}  // namespace millrace
