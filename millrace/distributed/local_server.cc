#include "millrace/distributed/local_server.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/session/session_backend.h"

namespace millrace {

struct ServerTask : RefCounted {
  ClusterSpec cluster;
  std::string job;
  std::string name;
  std::string address;
  std::vector<Ref<Device>> devices;
};

namespace {

constexpr std::string_view kScheme = "grpc";

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

Status no_network(std::string_view target, std::string_view what) {
  return unimplemented("cannot connect to '", target, "': ", what,
                       ". This version of Millrace has no network between processes, which comes "
                       "in a later version");
}

// Whether a filter agrees with the task, or with some device that it may have.
Result<bool> passes(const std::string& task, const std::vector<std::string>& filters) {
  MR_TRY_ASSIGN(const DeviceName name, DeviceName::parse(task));
  bool any = filters.empty();
  for (const std::string& filter : filters) {
    MR_TRY_ASSIGN(const DeviceName pattern, DeviceName::parse(filter));
    any |=
        (!pattern.job || pattern.job == name.job) && (!pattern.task || pattern.task == name.task);
  }
  return any;
}

// The tasks of a target, the one it names first.
Result<std::vector<Ref<ServerTask>>> tasks_of(std::string_view target,
                                              const std::vector<std::string>& device_filters) {
  const std::string_view address = target.substr(std::min(target.size(), kScheme.size() + 3));
  Ref<ServerTask> own = server_at(address);
  if (!own) return no_network(target, "no server of this process has that address");
  std::vector<Ref<ServerTask>> tasks = {own};
  std::vector<std::string> missing;
  for (const std::string& name : own->cluster.task_names()) {
    if (name == own->name) continue;
    MR_TRY_ASSIGN(const bool used, passes(name, device_filters));
    if (!used) continue;
    MR_TRY_ASSIGN(const std::string where, own->cluster.address(name));
    if (Ref<ServerTask> task = server_at(where); task && task->name == name) {
      tasks.push_back(std::move(task));
    } else {
      missing.push_back(str_cat(name, " at ", where));
    }
  }
  if (missing.empty()) return tasks;
  return no_network(target, str_cat("no server of this process is ", str_join(missing, ", ")));
}

Result<Ref<SessionBackend>> make_backend(const SessionOptions& options) {
  if (options.files) {
    return invalid_argument("files are a server's to narrow, not those of a session on it");
  }
  MR_TRY_ASSIGN(const auto tasks, tasks_of(options.target, options.device_filters));
  std::vector<Ref<Device>> devices;
  for (const Ref<ServerTask>& task : tasks) {
    devices.insert(devices.end(), task->devices.begin(), task->devices.end());
  }
  return make_local_backend(std::move(devices), options);
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

}  // namespace

LocalServer::LocalServer(Ref<ServerTask> task) : task_(std::move(task)) {}

Result<std::unique_ptr<LocalServer>> LocalServer::start(const Options& options) {
  MR_TRY(register_targets());
  Ref<ServerTask> task = make_ref<ServerTask>();
  task->cluster = options.cluster;
  task->job = options.job;
  task->name = task_name(options.job, options.task);
  for (const auto& [job, tasks] : options.cluster.jobs()) {
    for (const auto& [number, address] : tasks) MR_TRY(check_port(address));
  }
  MR_TRY_ASSIGN(task->address, options.cluster.address(task->name));
  MR_TRY_ASSIGN(const DeviceName device, DeviceName::parse(task->name));
  MR_TRY_ASSIGN(task->devices, make_cpu_devices(device, options.cpu_devices));
  for (const Ref<Device>& d : task->devices) {
    if (options.files) d->set_files(options.files);
  }
  Servers& all = servers();
  MutexLock lock(all.mu);
  if (!all.by_address.try_emplace(task->address, task).second) {
    return unknown("could not start the server of ", task->name, ": ", task->address,
                   " is another server's of this process");
  }
  return std::unique_ptr<LocalServer>(new LocalServer(std::move(task)));
}

LocalServer::~LocalServer() {
  {
    Servers& all = servers();
    MutexLock lock(all.mu);
    all.by_address.erase(task_->address);
  }
  // State may hold what holds the device.
  for (const Ref<Device>& device : task_->devices) device->resources().clear();
}

Status LocalServer::register_targets() {
  static const Status* status = new Status(register_session_backend(kScheme, make_backend));
  return *status;
}

Status LocalServer::reset(std::string_view target, std::span<const std::string> containers) {
  MR_TRY_ASSIGN(const auto tasks, tasks_of(target, {}));
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
