#include "millrace/distributed/worker.h"

#include <algorithm>
#include <memory>

#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/register_ops.h"
#include "millrace/runtime/boundary.h"
#include "millrace/runtime/local_function_runner.h"
#include "millrace/runtime/plan_set.h"
#include "proto/function.pb.h"

namespace millrace {
namespace {

constexpr size_t kRememberedSteps = 4096;

std::string hex(uint64_t value) {
  std::string out(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) out[i] = "0123456789abcdef"[value & 15];
  return out;
}

DeviceSet device_set(const TaskContext& task) {
  std::vector<Device::Info> infos;
  for (const Ref<Device>& device : task.devices) infos.push_back(device->info());
  return DeviceSet(std::move(infos), 0);
}

size_t slots(const std::map<int, DType>& positions) {
  return positions.empty() ? 0 : static_cast<size_t>(positions.rbegin()->first) + 1;
}

}  // namespace

struct Worker::Graph : RefCounted {
  Ref<PlanSet> plans;
  Boundary boundary;
  Ref<FunctionRunner> functions;
};

void Worker::TaskStep::end(const Status& reason) const {
  rendezvous->abort_from_outside(reason);
  step->cancel->cancel(reason);
}

Worker::Worker(Ref<const TaskContext> task) : task_(std::move(task)) {}

Worker::~Worker() { shut_down(cancelled("the worker of ", task_->name, " has ended")); }

Result<Ref<Worker>> Worker::create(std::string task, std::vector<Ref<Device>> devices,
                                   Ref<WorkerCache> peers) {
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
  return Ref<Worker>(new Worker(std::move(context)));
}

void Worker::get_status(UniqueFunction<void(Result<WorkerStatus>)> done) {
  if (Status reason = stopped(); !reason.ok()) return done(std::move(reason));
  WorkerStatus status;
  for (const Ref<Device>& device : task_->devices) status.devices.push_back(device->info());
  done(std::move(status));
}

void Worker::register_graph(RegisterGraphRequest request,
                            UniqueFunction<void(Result<std::string>)> done) {
  done(add_graph(request));
}

Result<Ref<FunctionRunner>> Worker::session_functions(const std::string& session,
                                                      const std::string& functions) {
  tensorflow::FunctionDefLibrary message;
  if (!message.ParseFromString(functions)) {
    return invalid_argument("expected a FunctionDefLibrary for ", task_->name, ", got ",
                            functions.size(), " bytes that are none");
  }
  Functions found;
  {
    MutexLock lock(mu_);
    MR_TRY(stopped_);
    Functions& known = functions_[session];
    if (!known.library) {
      known.library = make_ref<FunctionLibrary>();
      known.runner = make_function_runner(known.library, OpRegistry::global(), task_->devices[0],
                                          {.session_prefix = session});
    }
    found = known;
  }
  for (const tensorflow::FunctionDef& proto : message.function()) {
    MR_TRY_ASSIGN(Ref<Function> function, function_from_proto(proto));
    MR_TRY(found.library->add(std::move(function)));
  }
  return found.runner;
}

Result<std::string> Worker::add_graph(const RegisterGraphRequest& request) {
  if (request.incarnation != 0 && request.incarnation != incarnation()) {
    return aborted("task ", task_->name, " has restarted: expected incarnation ",
                   hex(request.incarnation), ", it is ", hex(incarnation()));
  }
  Result<Subgraph> parsed = Subgraph::from_graph_def_bytes(request.graph_def, OpRegistry::global());
  if (!parsed.ok()) return parsed.status().with_prefix(str_cat("graph for ", task_->name));
  Ref<Graph> graph = make_ref<Graph>();
  MR_TRY_ASSIGN(graph->boundary, read_boundary(*parsed, kMaxPositions, kMaxPositions));
  MR_TRY_ASSIGN(graph->functions, session_functions(request.session, request.functions));
  CompileOptions options;
  options.session_prefix = request.session;
  options.kernel_label = request.kernel_label;
  MR_TRY_ASSIGN(graph->plans, PlanSet::build(*parsed, task_->devices, device_set(*task_), options));
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  // With the incarnation, so that a handle given before a restart is never taken for a new one.
  std::string handle = str_cat(hex(incarnation()), "_", next_graph_++);
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
  done(std::move(status));
}

Result<Ref<Worker::Graph>> Worker::find_graph(const std::string& handle) const {
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  auto it = graphs_.find(handle);
  if (it != graphs_.end()) return it->second;
  return aborted("no graph ", handle, " is registered on ", task_->name,
                 ": the task has probably restarted");
}

Result<Worker::TaskStep> Worker::find_step(int64_t step_id) {
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  if (over_.contains(step_id)) return aborted("step ", step_id, " is over on ", task_->name);
  TaskStep& found = steps_[step_id];
  if (!found.step) {
    found.step = make_ref<Step>(step_id);
    found.rendezvous = make_ref<StepRendezvous>(step_id, task_);
    found.step->rendezvous = found.rendezvous;
    found.step->cancel = make_ref<CancellationToken>();
  }
  return found;
}

Result<Worker::TaskStep> Worker::prepare_run(const Boundary& graph, RunGraphRequest& request) {
  std::vector<Tensor> feeds(slots(graph.feeds));
  for (auto& [position, value] : request.feeds) {
    auto it = graph.feeds.find(position);
    if (it == graph.feeds.end()) {
      return invalid_argument("the graph on ", task_->name, " has no feed ", position);
    }
    Tensor& slot = feeds[static_cast<size_t>(position)];
    if (slot.valid()) return invalid_argument("feed ", position, " was given twice");
    if (value.dtype() != it->second) {
      return invalid_argument("feed ", position, ": expected ", it->second, ", got ",
                              value.dtype());
    }
    slot = std::move(value);
  }
  for (const auto& [position, type] : graph.feeds) {
    if (feeds[static_cast<size_t>(position)].valid()) continue;
    return invalid_argument("the graph on ", task_->name, " needs feed ", position);
  }
  std::vector<bool> asked(slots(graph.fetches));
  for (int position : request.fetches) {
    if (!graph.fetches.contains(position)) {
      return invalid_argument("the graph on ", task_->name, " has no fetch ", position);
    }
    if (asked[static_cast<size_t>(position)]) {
      return invalid_argument("fetch ", position, " was asked for twice");
    }
    asked[static_cast<size_t>(position)] = true;
  }
  MR_TRY_ASSIGN(TaskStep found, find_step(request.step_id));
  {
    MutexLock lock(mu_);
    auto known = steps_.find(request.step_id);
    if (known == steps_.end()) {
      return aborted("step ", request.step_id, " is over on ", task_->name);
    }
    if (known->second.started) {
      return aborted("step ", request.step_id, " has a run on ", task_->name, " already");
    }
    known->second.started = true;
  }
  Step& step = *found.step;
  step.hold_feeds(std::move(feeds));
  step.fetches.resize(slots(graph.fetches));
  step.max_threads = std::max(1, request.max_threads);
  if (request.trace) step.trace = make_ref<TraceCollector>();
  return found;
}

void Worker::run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                       UniqueFunction<void(Status, RunGraphResponse)> done) {
  Result<Ref<Graph>> graph = find_graph(request.graph_handle);
  if (!graph.ok()) return done(graph.status(), RunGraphResponse());
  Result<TaskStep> prepared = prepare_run((*graph)->boundary, request);
  if (!prepared.ok()) return done(prepared.status(), RunGraphResponse());
  TaskStep run = *std::move(prepared);
  run.step->functions = (*graph)->functions;
  uint64_t ticket = 0;
  if (cancel) {
    // By bare pointer: the run takes the callback back before it ends.
    ticket = cancel->on_cancel([run, token = cancel.get()] { run.end(token->status()); });
    if (ticket == 0) {
      run.end(cancel->status());
      return done(cancel->status(), RunGraphResponse{.derived = true});
    }
  }
  auto finish = [rendezvous = run.rendezvous, wanted = std::move(request.fetches), cancel, ticket,
                 done = std::move(done)](Step& step) mutable {
    if (ticket != 0) cancel->remove(ticket);
    RunGraphResponse response;
    Status status = step.status();
    if (status.ok()) {
      for (int position : wanted) {
        response.fetches.push_back(std::move(step.fetches[static_cast<size_t>(position)]));
      }
    } else {
      response.derived = rendezvous->ended_from_outside();
    }
    if (step.trace) {
      response.events = step.trace->events();
      response.wall_offset_ns = step.trace->wall_offset_ns();
    }
    step.hold_feeds({});
    step.fetches.clear();
    done(std::move(status), std::move(response));
  };
  (*graph)->plans->run_async(run.step, std::move(finish));
}

void Worker::recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                         UniqueFunction<void(Status, Value)> done) {
  TaskStep found;
  Ref<Device> sender;
  Status status = [&]() -> Status {
    MR_TRY_ASSIGN(RendezvousKey key, RendezvousKey::parse(request.key));
    sender = Ref<Device>(task_->find_device(key.send_device));
    if (!sender) {
      return invalid_argument("rendezvous key ", request.key, ": the sender is not a device of ",
                              task_->name);
    }
    if (key.incarnation != sender->info().incarnation) {
      return aborted("rendezvous key ", request.key, ": ", sender->name(),
                     " has restarted, its incarnation is ", hex(sender->info().incarnation));
    }
    MR_TRY_ASSIGN(found, find_step(request.step_id));
    return ok_status();
  }();
  if (!status.ok()) return done(std::move(status), Value());
  found.rendezvous->recv_here(
      request.key, std::move(cancel),
      [sender, done = std::move(done)](Status ended, Value value) mutable {
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
  Result<TaskStep> step = find_step(step_id);
  // ABORTED: the step is over already.
  if (!step.ok()) return done(step.status().code() == Code::kAborted ? ok_status() : step.status());
  step->end(reason);
  done(ok_status());
}

void Worker::cleanup_step(int64_t step_id, StatusDone done) {
  TaskStep found;
  Status status = [&]() -> Status {
    MutexLock lock(mu_);
    MR_TRY(stopped_);
    if (auto it = steps_.find(step_id); it != steps_.end()) {
      found = std::move(it->second);
      steps_.erase(it);
    }
    if (!over_.insert(step_id).second) return ok_status();
    over_order_.push_back(step_id);
    if (over_order_.size() > kRememberedSteps) {
      over_.erase(over_order_.front());
      over_order_.pop_front();
    }
    return ok_status();
  }();
  if (found.step) found.end(cancelled("step ", step_id, " is over on ", task_->name));
  done(std::move(status));
}

void Worker::delete_session(std::string session, StatusDone done) {
  if (Status reason = stopped(); !reason.ok()) return done(std::move(reason));
  {
    MutexLock lock(mu_);
    functions_.erase(session);
  }
  for (const Ref<Device>& device : task_->devices) device->resources().clear_session(session);
  done(ok_status());
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

void Worker::shut_down(Status reason) {
  std::map<int64_t, TaskStep> steps;
  std::unordered_map<std::string, Ref<Graph>> graphs;
  std::unordered_map<std::string, Functions> functions;
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    steps.swap(steps_);
    graphs.swap(graphs_);
    functions.swap(functions_);
  }
  for (auto& [id, step] : steps) step.end(reason);
}

int Worker::num_graphs() const {
  MutexLock lock(mu_);
  return static_cast<int>(graphs_.size());
}

std::vector<std::string> Worker::steps() const {
  std::vector<TaskStep> steps;
  {
    MutexLock lock(mu_);
    for (const auto& [id, step] : steps_) steps.push_back(step);
  }
  std::vector<std::string> out;
  for (const TaskStep& known : steps) {
    out.push_back(
        str_cat("step ", known.step->id, ": ", str_join(known.rendezvous->waiting(), ", ")));
  }
  return out;
}

}  // namespace millrace
