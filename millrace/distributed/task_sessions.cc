#include "millrace/distributed/task_sessions.h"

#include <algorithm>

#include "millrace/kernel/resource_manager.h"
#include "millrace/runtime/local_function_runner.h"
#include "proto/function.pb.h"

namespace millrace {

TaskSession::TaskSession(std::string name, std::string client, Ref<const TaskContext> task)
    : name_(std::move(name)), client_(std::move(client)), task_(std::move(task)) {}

Status TaskSession::open(const SessionScope& scope) {
  MutexLock lock(mu_);
  if (!functions_) {
    scope_ = scope;
    devices_ = task_->devices;
    if (scope.own_devices()) {
      MR_TRY_ASSIGN(devices_, make_session_devices(task_->devices, scope.rights));
    }
    functions_ = make_function_runner(library_, OpRegistry::global(), devices_[0],
                                      {.session_prefix = name_, .rights = scope.node_rights()});
  }
  if (scope_ == scope) return ok_status();
  return invalid_argument("session ", name_, " on ", task_->name, ": expected rights ",
                          scope_.rights.to_string(), " as with its first graph, got ",
                          scope.rights.to_string());
}

Status TaskSession::add_functions(const std::string& functions) {
  tensorflow::FunctionDefLibrary message;
  if (!message.ParseFromString(functions)) {
    return invalid_argument("expected a FunctionDefLibrary for ", task_->name, ", got ",
                            functions.size(), " bytes that are none");
  }
  for (const tensorflow::FunctionDef& proto : message.function()) {
    MR_TRY_ASSIGN(Ref<Function> function, function_from_proto(proto));
    MR_TRY(library_->add(std::move(function)));
  }
  return ok_status();
}

std::vector<Ref<Device>> TaskSession::devices() const {
  MutexLock lock(mu_);
  return devices_;
}

Ref<FunctionRunner> TaskSession::functions() const {
  MutexLock lock(mu_);
  return functions_;
}

Status TaskSession::check() const {
  MutexLock lock(mu_);
  return ended_;
}

Status TaskSession::begin_run() {
  MutexLock lock(mu_);
  MR_TRY(ended_);
  ++running_;
  return ok_status();
}

void TaskSession::end_run() {
  {
    MutexLock lock(mu_);
    if (--running_ > 0 || ended_.ok()) return;
  }
  clear_resources();
}

void TaskSession::end(Status why) {
  MutexLock lock(mu_);
  ended_ = std::move(why);
}

void TaskSession::clear_resources() {
  std::vector<Ref<Device>> devices;
  bool own = false;
  {
    MutexLock lock(mu_);
    devices = devices_;
    own = scope_.own_devices();
  }
  for (const Ref<Device>& device : devices) {
    if (own) {
      device->resources().clear();
    } else {
      device->resources().clear_session(name_);
    }
  }
}

TaskSessions::TaskSessions(Ref<const TaskContext> task, const ServerLimits& limits)
    : task_(std::move(task)), limits_(limits), leases_(task_->name) {}

Status TaskSessions::check_room(const std::string& client) const {
  if (sessions_.size() >= static_cast<size_t>(limits_.sessions)) {
    return resource_exhausted("task ", task_->name, " has ", limits_.sessions,
                              " sessions, as many as MILLRACE_CLUSTER_MAX_SESSIONS allows it");
  }
  if (client.empty()) return ok_status();
  const auto of_client = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& known) {
    return known.second->client() == client;
  });
  if (of_client < limits_.sessions_per_client) return ok_status();
  return resource_exhausted("task ", task_->name, " has ", of_client, " sessions of ", client,
                            ", as many as MILLRACE_CLUSTER_MAX_SESSIONS_PER_CLIENT allows one");
}

Result<Ref<TaskSession>> TaskSessions::hear_of(const std::string& name, int64_t lease_ms,
                                               const std::string& client) {
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  MR_TRY(leases_.keep(name, lease_ms, task_->timer->now_ns()));
  if (const auto it = sessions_.find(name); it != sessions_.end()) return it->second;
  if (Status full = check_room(client); !full.ok()) {
    leases_.drop(name);
    return full;
  }
  Ref<TaskSession> made = make_ref<TaskSession>(name, client, task_);
  sessions_.emplace(name, made);
  return made;
}

Status TaskSessions::check_lease(const std::string& name) const {
  MutexLock lock(mu_);
  return leases_.check(name);
}

Ref<TaskSession> TaskSessions::end(const std::string& name) {
  MutexLock lock(mu_);
  leases_.drop(name);
  const auto found = sessions_.extract(name);
  if (!found) return nullptr;
  const Status lapsed = leases_.check(name);
  found.mapped()->end(!lapsed.ok() ? lapsed
                                   : aborted("session ", name, " is over on ", task_->name));
  return found.mapped();
}

std::vector<std::pair<std::string, Status>> TaskSessions::take_lapsed(int64_t now_ns) {
  MutexLock lock(mu_);
  return leases_.take_lapsed(now_ns);
}

int64_t TaskSessions::next_lapse_ns() const {
  MutexLock lock(mu_);
  return leases_.next_lapse_ns();
}

std::vector<Ref<TaskSession>> TaskSessions::shut_down(Status reason) {
  std::vector<Ref<TaskSession>> out;
  MutexLock lock(mu_);
  stopped_ = std::move(reason);
  for (auto& [name, session] : sessions_) out.push_back(std::move(session));
  sessions_.clear();
  return out;
}

std::vector<WorkerActivity::Session> TaskSessions::tell(int64_t now_ns) const {
  std::vector<WorkerActivity::Session> out;
  MutexLock lock(mu_);
  for (const auto& [name, lease] : leases_.known()) out.push_back({name, lease.left_ms(now_ns)});
  return out;
}

}  // namespace millrace
