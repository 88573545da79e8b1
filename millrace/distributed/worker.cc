#include "millrace/distributed/worker.h"

#include "millrace/base/clock.h"
#include "millrace/base/hex.h"
#include "millrace/base/log.h"
#include "millrace/distributed/partial_keys.h"
#include "millrace/distributed/task_activity.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

// Memory is given back when graphs of so many bytes were dropped; at the end of a session, of
// fewer.
constexpr int64_t kGiveBackBytes = int64_t{8} << 20;
constexpr int64_t kGiveBackAtEndBytes = int64_t{1} << 20;

// Of a graph's handle, see add_graph(); empty for what is none.
std::string session_of(const std::string& handle) {
  const size_t number = handle.find('_');
  const size_t session = number == std::string::npos ? number : handle.find('_', number + 1);
  return session == std::string::npos ? "" : handle.substr(session + 1);
}

}  // namespace

Worker::Worker(Ref<const TaskContext> task, const ServerLimits& limits, ThreadPool* pool)
    : task_(std::move(task)),
      began_ns_(now_ns()),
      graph_bytes_(make_ref<GraphBytes>(task_->name, limits.graph_bytes)),
      collectives_(make_ref<TaskCollectives>(task_)),
      chosen_collectives_(collectives_),
      sessions_(task_, limits),
      steps_(task_, collectives_, pool) {}

void Worker::choose_collectives(Ref<Collectives> chosen) {
  chosen_collectives_ = std::move(chosen);
  steps_.choose_collectives(chosen_collectives_);
}

Worker::~Worker() { shut_down(cancelled("the worker of ", task_->name, " has ended")); }

Result<Ref<Worker>> Worker::create(std::string task, std::vector<Ref<Device>> devices,
                                   Ref<WorkerCache> peers, Ref<Timer> timer, ThreadPool* pool) {
  if (devices.empty() || devices[0]->kind() != DeviceKind::kCpu) {
    return invalid_argument("task ", task, " needs devices, a CPU first");
  }
  for (const Ref<Device>& device : devices) {
    if (device->info().name.task_name() == task) continue;
    return invalid_argument("expected devices of task ", task, ", got ", device->name());
  }
  MR_TRY(register_ops());
  Ref<TaskContext> context = make_ref<TaskContext>();
  context->name = std::move(task);
  context->devices = std::move(devices);
  context->peers = std::move(peers);
  context->timer = std::move(timer);
  context->counters = std::make_unique<TaskCounters>(context->peers->tasks());
  return Ref<Worker>(new Worker(std::move(context), ServerLimits::from_environment(), pool));
}

void Worker::get_status(UniqueFunction<void(Result<WorkerStatus>)> done) {
  if (Status reason = stopped(); !reason.ok()) return done(std::move(reason));
  WorkerStatus status;
  for (const Ref<Device>& device : task_->devices) status.devices.push_back(device->info());
  status.clock_ns = monotonic_nanos();
  done(std::move(status));
}

void Worker::register_graph(RegisterGraphRequest request,
                            UniqueFunction<void(Result<std::string>)> done) {
  done(add_graph(request));
}

Status Worker::check_incarnation(uint64_t expected) const {
  if (expected == 0 || expected == incarnation()) return ok_status();
  return aborted("task ", task_->name, " has restarted: expected incarnation ",
                 hex_digits(expected), ", it is ", hex_digits(incarnation()));
}

Result<Ref<TaskSession>> Worker::hear_of(const std::string& name, int64_t lease_ms,
                                         const std::string& client) {
  MR_TRY_ASSIGN(Ref<TaskSession> session, sessions_.hear_of(name, lease_ms, client));
  if (lease_ms > 0) watch_later(lease_ms * 1'000'000);
  return session;
}

Result<std::string> Worker::add_graph(const RegisterGraphRequest& request) {
  MR_TRY(check_incarnation(request.incarnation));
  task_->counters->graph_received(request.graph_def.size() + request.functions.size());
  Result<Subgraph> parsed = Subgraph::from_graph_def_bytes(request.graph_def, OpRegistry::global());
  if (!parsed.ok()) return parsed.status().with_prefix(str_cat("graph for ", task_->name));
  MR_TRY_ASSIGN(Boundary boundary, read_boundary(*parsed, kMaxPositions, kMaxPositions));
  MR_TRY_ASSIGN(Ref<TaskSession> session,
                hear_of(request.session, request.lease_ms, request.client));
  MR_TRY(session->open(request.scope));
  MR_TRY(session->add_functions(request.functions));
  MR_TRY_ASSIGN(Ref<TaskGraph> graph, TaskGraph::compile(*parsed, std::move(boundary), session,
                                                         request, *task_, graph_bytes_));
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  // With the lock: a session that ends now finds the graph among those it has.
  MR_TRY(session->check());
  // With the incarnation, so that a handle given before a restart is never taken for a new one, and
  // with the session, so that it says whose it was when it is gone.
  std::string handle = str_cat(hex_digits(incarnation()), "_", next_graph_++, "_", request.session);
  graphs_.emplace(handle, std::move(graph));
  return handle;
}

void Worker::deregister_graph(std::string graph_handle, StatusDone done) {
  Status status = [&]() -> Status {
    MutexLock lock(mu_);
    MR_TRY(stopped_);
    if (graphs_.erase(graph_handle) == 1) return ok_status();
    return aborted("no graph ", graph_handle, " is registered on ", task_->name);
  }();
  graph_bytes_->give_back(kGiveBackBytes);
  done(std::move(status));
}

Result<Ref<TaskGraph>> Worker::find_graph(const std::string& handle) const {
  {
    MutexLock lock(mu_);
    MR_TRY(stopped_);
    auto it = graphs_.find(handle);
    if (it != graphs_.end()) return it->second;
  }
  MR_TRY(sessions_.check_lease(session_of(handle)));
  return aborted("no graph ", handle, " is registered on ", task_->name,
                 ": the task has probably restarted");
}

void Worker::give_tensor(int64_t step_id, std::string key, Value value, StatusDone done) {
  Result<TaskStep> found = steps_.find(step_id);
  if (!found.ok()) return done(found.status());
  if (!found->graph) watch_for_idle();
  if (is_feed_key(key)) {
    task_->counters->feeds_received(value.tensor.bytes());
  } else {
    const std::string_view sender = std::string_view(key).substr(0, key.find(';'));
    task_->counters->with_device(sender).received(value.tensor.bytes());
  }
  done(found->rendezvous->give(key, std::move(value)));
}

void Worker::recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                         UniqueFunction<void(Status, Value)> done) {
  TaskStep found;
  Ref<Device> sender;
  TaskCounters::Traffic* traffic = nullptr;  // null: with a client, which fetches
  Status status = [&]() -> Status {
    if (is_fetch_key(request.key)) {
      MR_TRY_ASSIGN(found, steps_.find(request.step_id));
      return ok_status();
    }
    MR_TRY_ASSIGN(RendezvousKey key, RendezvousKey::parse(request.key));
    sender = Ref<Device>(task_->find_device(key.send_device));
    if (!sender) {
      return invalid_argument("rendezvous key ", request.key, ": the sender is not a device of ",
                              task_->name);
    }
    if (key.incarnation != sender->info().incarnation) {
      return aborted("rendezvous key ", request.key, ": ", sender->name(),
                     " has restarted, its incarnation is ", hex_digits(sender->info().incarnation));
    }
    traffic = &task_->counters->with_device(key.recv_device);
    MR_TRY_ASSIGN(found, steps_.find(request.step_id));
    return ok_status();
  }();
  if (!status.ok()) return done(std::move(status), Value());
  if (!found.graph) watch_for_idle();
  found.rendezvous->recv_here(
      request.key, std::move(cancel),
      // The rendezvous holds the task, and with it the counters.
      [counters = task_->counters.get(), traffic, sender, done = std::move(done)](
          Status ended, Value value) mutable {
        if (ended.ok() && traffic != nullptr) traffic->sent(value.tensor.bytes());
        if (ended.ok() && traffic == nullptr) counters->fetches_sent(value.tensor.bytes());
        const Ref<Buffer>& buffer = value.tensor.buffer();
        if (!ended.ok() || !buffer || buffer->space() != MemorySpace::kDevice) {
          return done(std::move(ended), std::move(value));
        }
        sender->copy_to_host(value.tensor, [done = std::move(done)](Result<Tensor> copy) mutable {
          if (!copy.ok()) return done(copy.status(), Value());
          done(ok_status(), Value::of(std::move(copy).value()));
        });
      });
}

void Worker::abort_step(int64_t step_id, Status reason, StatusDone done) {
  if (reason.ok())
    return done(invalid_argument("abort of step ", step_id, " needs an error as reason"));
  Result<TaskStep> step = steps_.find(step_id);
  // ABORTED: the step is over already.
  if (!step.ok()) return done(step.status().code() == Code::kAborted ? ok_status() : step.status());
  if (!step->graph) watch_for_idle();
  step->end(reason);
  done(ok_status());
}

void Worker::cleanup_step(int64_t step_id, StatusDone done) {
  if (Status reason = stopped(); !reason.ok()) return done(std::move(reason));
  end_steps({step_id});
  done(ok_status());
}

void Worker::end_steps(const std::vector<int64_t>& step_ids) {
  std::vector<TaskStep> steps = steps_.take(step_ids);
  for (const TaskStep& step : steps) {
    step.end(cancelled("step ", step.step->id, " is over on ", task_->name));
  }
}

void Worker::delete_session(std::string session, StatusDone done) {
  if (Status reason = stopped(); !reason.ok()) return done(std::move(reason));
  end_session(session, cancelled("session ", session, " has ended"));
  done(ok_status());
}

void Worker::end_session(const std::string& name, const Status& reason) {
  if (const Ref<TaskSession> session = sessions_.end(name)) {
    std::vector<Ref<TaskGraph>> graphs;
    {
      MutexLock lock(mu_);
      std::erase_if(graphs_, [&](auto& graph) {
        if (graph.second->session() != session) return false;
        graphs.push_back(std::move(graph.second));
        return true;
      });
    }
    for (const TaskStep& step : steps_.take_of(*session)) step.end(reason);
    session->clear_resources();
  }
  graph_bytes_->give_back(kGiveBackAtEndBytes);
}

void Worker::keep_session(KeepSessionRequest request, StatusDone done) {
  std::vector<Ref<TaskGraph>> graphs;
  Status status = [&]() -> Status {
    MR_TRY(check_incarnation(request.incarnation));
    if (request.lease_ms == 0) {
      return invalid_argument("session ", request.session, ": expected a lease, got 0 ms");
    }
    MR_TRY(hear_of(request.session, request.lease_ms, request.client).status());
    end_steps(request.over_steps);
    MutexLock lock(mu_);
    for (const std::string& handle : request.over_graphs) {
      auto graph = graphs_.extract(handle);
      if (graph) graphs.push_back(std::move(graph.mapped()));
    }
    return ok_status();
  }();
  done(std::move(status));
}

void Worker::watch_later(int64_t delay_ns) {
  MutexLock lock(mu_);
  const int64_t at = now_ns() + delay_ns;
  if (!stopped_.ok() || at >= watch_at_ns_) return;
  if (watch_ticket_ != 0) task_->timer->remove(watch_ticket_);
  watch_at_ns_ = at;
  watch_ticket_ = task_->timer->schedule(delay_ns, [self = Ref<Worker>(this)] { self->watch(); });
}

void Worker::watch() {
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    watch_ticket_ = 0;
    watch_at_ns_ = INT64_MAX;
  }
  const int64_t now = now_ns();
  const std::vector<std::pair<std::string, Status>> lapsed = sessions_.take_lapsed(now);
  if (const int64_t next = sessions_.next_lapse_ns(); next != INT64_MAX) watch_later(next - now);
  for (const auto& [session, reason] : lapsed) {
    MR_LOG(kWarning, reason);
    end_session(session, reason);
  }
  if (steps_.forget_idle(now, idle_ns_)) watch_for_idle();
}

void Worker::reset(std::vector<std::string> containers, StatusDone done) {
  if (Status reason = stopped(); !reason.ok()) return done(std::move(reason));
  if (containers.empty()) containers.emplace_back(ResourceManager::kDefaultContainer);
  for (const Ref<Device>& device : task_->devices) {
    for (const std::string& container : containers) {
      const bool by_job = container == device->info().name.job;
      device->resources().clear_container(by_job ? ResourceManager::kDefaultContainer : container);
    }
  }
  done(ok_status());
}

void Worker::join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                        UniqueFunction<void(Result<GroupView>)> done) {
  collectives_->join_group(std::move(request), std::move(cancel), std::move(done));
}

void Worker::recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                        UniqueFunction<void(Result<Tensor>)> done) {
  collectives_->recv_chunk(std::move(request), std::move(cancel), std::move(done));
}

void Worker::end_group(EndGroupRequest request, StatusDone done) {
  done(collectives_->end_group(request));
}

void Worker::shut_down(Status reason) {
  std::unordered_map<std::string, Ref<TaskGraph>> graphs;
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    graphs.swap(graphs_);
    if (watch_ticket_ != 0) task_->timer->remove(watch_ticket_);
  }
  const std::vector<Ref<TaskSession>> sessions = sessions_.shut_down(reason);
  for (const TaskStep& step : steps_.shut_down(reason)) step.end(reason);
  chosen_collectives_->shut_down(reason);
  // State may hold what holds the device.
  for (const Ref<TaskSession>& session : sessions) session->clear_resources();
}

int Worker::num_graphs() const {
  MutexLock lock(mu_);
  return static_cast<int>(graphs_.size());
}

std::vector<std::string> Worker::steps() const {
  std::vector<std::string> out;
  for (const WorkerActivity::Step& step : activity(0).steps) {
    out.push_back(str_cat("step ", step.id, ": ", str_join(step.waits_for, ", ")));
  }
  return out;
}

WorkerActivity Worker::activity(int64_t step_id) const {
  WorkerActivity out;
  const int64_t now = now_ns();
  std::vector<TaskStep> steps = steps_.all();
  if (step_id != 0) {
    std::erase_if(steps, [&](const TaskStep& step) { return step.step->id != step_id; });
  }
  CollectiveWaits together = chosen_collectives_->waits();
  out.steps = tell_steps(steps, together, now);
  if (step_id != 0) return out;
  // Of sessions without a cluster, and of groups that form here.
  for (auto& [step, wait] : together) {
    out.steps.push_back({.id = step, .waits_for = {std::move(wait)}, .defined = {""}});
  }
  out.sessions = sessions_.tell(now);
  {
    std::unordered_map<std::string_view, int> graphs;
    MutexLock lock(mu_);
    for (const auto& [handle, graph] : graphs_) ++graphs[graph->session()->name()];
    for (WorkerActivity::Session& session : out.sessions) session.graphs = graphs[session.name];
  }
  out.clock_ns = now;
  out.up_ms = (now - began_ns_) / 1'000'000;
  task_->counters->tell(out);
  out.queues = tell_queues(task_->devices);
  return out;
}

void Worker::get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) {
  if (Status reason = stopped(); !reason.ok()) return done(std::move(reason));
  done(activity(step_id));
}

}  // namespace millrace
