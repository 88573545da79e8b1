#include "millrace/distributed/worker.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "millrace/base/clock.h"
#include "millrace/base/log.h"
#include "millrace/base/thread_pool.h"
#include "millrace/distributed/partial_keys.h"
#include "millrace/distributed/run_in_pieces.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/queue/queue.h"
#include "millrace/ops/register_ops.h"
#include "millrace/runtime/boundary.h"
#include "millrace/runtime/local_function_runner.h"
#include "millrace/runtime/plan_set.h"
#include "proto/function.pb.h"

namespace millrace {
namespace {

constexpr size_t kRememberedSteps = 4096;
constexpr size_t kToldQueues = 64;
// Memory is given back when graphs of so many bytes were dropped; at the end of a session, of
// fewer.
constexpr int64_t kGiveBackBytes = int64_t{8} << 20;
constexpr int64_t kGiveBackAtEndBytes = int64_t{1} << 20;
// Longer runs had better send each thing as soon as it is there.
constexpr int64_t kPromptNs = 1'000'000;

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

// Of a graph's handle, see add_graph(); empty for what is none.
std::string session_of(const std::string& handle) {
  const size_t number = handle.find('_');
  const size_t session = number == std::string::npos ? number : handle.find('_', number + 1);
  return session == std::string::npos ? "" : handle.substr(session + 1);
}

// Whether a node sends or receives the tensor of this name.
bool carries(const KernelNode& node, std::string_view tensor) {
  if (!node.op->traits.send && !node.op->traits.recv) return false;
  const Result<std::string> name = node.attr<std::string>("tensor_name");
  return name.ok() && *name == tensor;
}

void add_queues(Device& device, std::vector<WorkerActivity::Queue>& out) {
  for (const ResourceManager::Entry& entry : device.resources().list()) {
    if (out.size() == kToldQueues) return;
    if (entry.type != Queue::kTypeName) continue;
    const auto queue = device.resources().lookup<Queue>(entry.container, entry.name);
    if (!queue.ok()) continue;  // gone meanwhile
    WorkerActivity::Queue& told = out.emplace_back();
    told.device = device.name();
    told.container = entry.container;
    told.name = entry.name;
    told.size = (*queue)->size();
    told.capacity = (*queue)->spec().capacity;
    told.closed = (*queue)->closed();
  }
}

size_t slots(const std::map<int, DType>& positions) {
  return positions.empty() ? 0 : static_cast<size_t>(positions.rbegin()->first) + 1;
}

}  // namespace

struct Worker::SessionState : RefCounted {
  std::string name;
  std::string client;  // who made it, as far as that is known
  Ref<FunctionLibrary> library;
  // Since its first graph; fixed then.
  SessionScope scope;
  std::vector<Ref<Device>> devices;  // the task's, or its own
  Ref<FunctionRunner> functions;
  int running = 0;     // steps
  bool ended = false;  // nothing of it may begin any more
};

struct Worker::GraphBytes : RefCounted {
  std::atomic<int64_t> total{0};
  std::atomic<int64_t> dropped{0};  // since memory was given back

  void drop(int64_t bytes) {
    total -= bytes;
    dropped += bytes;
  }
  // The allocator keeps the small pieces of memory that graphs took, scattered among those of
  // others. Once so many bytes were dropped, it is told to give whole pages back.
  void give_back(int64_t at_least) {
    if (dropped < at_least) return;
    dropped = 0;
    ThreadPool::global().schedule_blocking([] { malloc_trim(0); });
  }
};

struct Worker::Graph : RefCounted {
  ~Graph() override {
    if (counted) counted->drop(plans->bytes());
  }
  Ref<GraphBytes> counted;  // null: not counted yet
  Ref<PlanSet> plans;
  bool prompt = false;  // nothing in it waits, but for what it receives from others
  size_t receives = 0;  // so much
  Boundary boundary;
  Ref<SessionState> session;

  // Where the node of a wait (WorkerActivity::Step) was made; empty where that is not known.
  std::string where_defined(const std::string& wait) const;
};

std::string Worker::Graph::where_defined(const std::string& wait) const {
  const Result<RendezvousKey> key = RendezvousKey::parse(wait.substr(0, wait.find(" from ")));
  const size_t quote = std::min(wait.find('"'), wait.size() - 1);
  const std::string name = wait.substr(quote + 1, wait.rfind('"') - quote - 1);
  for (const Ref<Plan>& plan : plans->plans()) {
    for (size_t i = 0; i < plan->steps.size(); ++i) {
      const KernelNode& node = *plan->steps[i].node;
      if (key.ok() ? carries(node, key->tensor_name) : node.name == name) {
        return describe_origin(plan->origins[i]);
      }
    }
  }
  return "";
}

void Worker::TaskStep::end(const Status& reason) const {
  rendezvous->abort_from_outside(reason);
  step->fail(reason);  // the step's error, before kernels that are cancelled have theirs
}

Worker::Worker(Ref<const TaskContext> task, Ref<Timer> timer, ThreadPool* pool)
    : task_(std::move(task)),
      timer_(std::move(timer)),
      began_ns_(timer_->now_ns()),
      graph_bytes_(make_ref<GraphBytes>()),
      collectives_(make_ref<TaskCollectives>(task_)),
      pool_(pool),
      leases_(task_->name) {}

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
  context->timer = timer;
  context->counters = std::make_unique<TaskCounters>(context->peers->tasks());
  return Ref<Worker>(new Worker(std::move(context), std::move(timer), pool));
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
  return aborted("task ", task_->name, " has restarted: expected incarnation ", hex(expected),
                 ", it is ", hex(incarnation()));
}

Status Worker::check_room(const std::string& client) const {
  if (sessions_.size() >= static_cast<size_t>(limits_.sessions)) {
    return resource_exhausted("task ", task_->name, " has ", limits_.sessions,
                              " sessions, as many as MILLRACE_CLUSTER_MAX_SESSIONS allows it");
  }
  if (client.empty()) return ok_status();
  const auto of_client = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& known) {
    return known.second->client == client;
  });
  if (of_client < limits_.sessions_per_client) return ok_status();
  return resource_exhausted("task ", task_->name, " has ", of_client, " sessions of ", client,
                            ", as many as MILLRACE_CLUSTER_MAX_SESSIONS_PER_CLIENT allows one");
}

Result<Ref<Worker::SessionState>> Worker::find_session(const std::string& name, int64_t lease_ms,
                                                       const std::string& client) {
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  MR_TRY(leases_.keep(name, lease_ms, timer_->now_ns()));
  if (lease_ms > 0) watch_later(lease_ms * 1'000'000);
  if (!sessions_.contains(name)) {
    if (Status full = check_room(client); !full.ok()) {
      leases_.drop(name);
      return full;
    }
  }
  Ref<SessionState>& found = sessions_[name];
  if (!found) {
    found = make_ref<SessionState>();
    found->name = name;
    found->client = client;
    found->library = make_ref<FunctionLibrary>();
  }
  return found;
}

Status Worker::open_session(SessionState& session, const SessionScope& scope) {
  MutexLock lock(mu_);
  if (!session.functions) {
    session.scope = scope;
    session.devices = task_->devices;
    if (scope.own_devices()) {
      MR_TRY_ASSIGN(session.devices, make_session_devices(task_->devices, scope.rights));
    }
    session.functions =
        make_function_runner(session.library, OpRegistry::global(), session.devices[0],
                             {.session_prefix = session.name, .rights = scope.node_rights()});
  }
  if (session.scope == scope) return ok_status();
  return invalid_argument("session ", session.name, " on ", task_->name, ": expected rights ",
                          session.scope.rights.to_string(), " as with its first graph, got ",
                          scope.rights.to_string());
}

Status Worker::add_functions(SessionState& session, const std::string& functions) const {
  tensorflow::FunctionDefLibrary message;
  if (!message.ParseFromString(functions)) {
    return invalid_argument("expected a FunctionDefLibrary for ", task_->name, ", got ",
                            functions.size(), " bytes that are none");
  }
  for (const tensorflow::FunctionDef& proto : message.function()) {
    MR_TRY_ASSIGN(Ref<Function> function, function_from_proto(proto));
    MR_TRY(session.library->add(std::move(function)));
  }
  return ok_status();
}

Result<std::string> Worker::add_graph(const RegisterGraphRequest& request) {
  MR_TRY(check_incarnation(request.incarnation));
  task_->counters->graph_received(request.graph_def.size() + request.functions.size());
  Result<Subgraph> parsed = Subgraph::from_graph_def_bytes(request.graph_def, OpRegistry::global());
  if (!parsed.ok()) return parsed.status().with_prefix(str_cat("graph for ", task_->name));
  Ref<Graph> graph = make_ref<Graph>();
  MR_TRY_ASSIGN(graph->boundary, read_boundary(*parsed, kMaxPositions, kMaxPositions));
  MR_TRY_ASSIGN(graph->session, find_session(request.session, request.lease_ms, request.client));
  MR_TRY(open_session(*graph->session, request.scope));
  MR_TRY(add_functions(*graph->session, request.functions));
  CompileOptions options;
  options.session_prefix = request.session;
  options.kernel_label = request.kernel_label;
  options.rights = request.scope.node_rights();
  MR_TRY_ASSIGN(graph->plans,
                PlanSet::build(*parsed, graph->session->devices, device_set(*task_), options));
  const std::vector<Ref<Plan>>& plans = graph->plans->plans();
  graph->prompt = plans.size() == 1 && !plans[0]->has_frames && !plans[0]->has_dead &&
                  !plans[0]->enqueues && !graph->plans->has_blocking();
  for (const Ref<Plan>& plan : plans) {
    for (const PlanStep& step : plan->steps) {
      if (!step.async) continue;
      graph->prompt &= step.runs_when_dead;  // a _Recv
      ++graph->receives;
    }
  }
  // Counted before it is looked at, so that graphs that come at once see each other.
  const int64_t bytes = graph->plans->bytes();
  graph->counted = graph_bytes_;
  if (const int64_t total = graph_bytes_->total += bytes; total > limits_.graph_bytes) {
    return resource_exhausted(
        "task ", task_->name, " has graphs of ", (total - bytes) >> 20, " MiB, and ", bytes,
        " bytes more are past the ", limits_.graph_bytes >> 20,
        " MiB that MILLRACE_CLUSTER_MAX_GRAPH_MB allows it: close sessions, or use fewer "
        "different fetches and feeds");
  }
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  MR_TRY(check_session(*graph->session));
  // With the incarnation, so that a handle given before a restart is never taken for a new one, and
  // with the session, so that it says whose it was when it is gone.
  std::string handle = str_cat(hex(incarnation()), "_", next_graph_++, "_", request.session);
  graphs_.emplace(handle, std::move(graph));
  return handle;
}

Status Worker::check_session(const SessionState& session) const {
  if (!session.ended) return ok_status();
  MR_TRY(leases_.check(session.name));
  return aborted("session ", session.name, " is over on ", task_->name);
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

Result<Ref<Worker::Graph>> Worker::find_graph(const std::string& handle) const {
  MutexLock lock(mu_);
  MR_TRY(stopped_);
  auto it = graphs_.find(handle);
  if (it != graphs_.end()) return it->second;
  MR_TRY(leases_.check(session_of(handle)));
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
    if (pool_ != nullptr) found.step->pool = pool_;
    found.rendezvous = make_ref<StepRendezvous>(step_id, task_);
    found.rendezvous->collectives = collectives_;
    found.step->rendezvous = found.rendezvous;
    found.step->cancel = make_ref<CancellationToken>();
  }
  return found;
}

Result<Worker::TaskStep> Worker::prepare_run(const Ref<Graph>& runs, RunGraphRequest& request,
                                             const Ref<RunAnswer>& answer) {
  const Boundary& graph = runs->boundary;
  std::vector<Tensor> feeds(slots(graph.feeds));
  size_t feed_bytes = 0;
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
    feed_bytes += value.bytes();
    slot = std::move(value);
  }
  if (request.in_pieces && !(request.feeds.empty() && request.fetches.empty())) {
    return invalid_argument("a run in pieces on ", task_->name, " is given no feeds or fetches");
  }
  for (const auto& [position, type] : graph.feeds) {
    if (request.in_pieces || feeds[static_cast<size_t>(position)].valid()) continue;
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
  Result<Ref<UpdateLog>> log = begin_update(request);
  if (!log.ok()) {
    watch_for_idle();  // the step may be one that find_step() made
    return log.status();
  }
  const Status begun = [&]() -> Status {
    MutexLock lock(mu_);
    auto known = steps_.find(request.step_id);
    if (known == steps_.end()) {
      return aborted("step ", request.step_id, " is over on ", task_->name);
    }
    if (known->second.graph) {
      return aborted("step ", request.step_id, " has a run on ", task_->name, " already");
    }
    if (Status over = check_session(*runs->session); !over.ok()) {
      watch_later(idle_ns_);  // the step may be one that find_step() made
      return over;
    }
    known->second.graph = runs;
    known->second.answer = answer;
    known->second.began_ns = found.began_ns = timer_->now_ns();
    ++runs->session->running;
    return ok_status();
  }();
  if (!begun.ok()) {
    updates_.end(request.update);
    return begun;
  }
  Step& step = *found.step;
  step.rendezvous->updates = *std::move(log);
  step.hold_feeds(std::move(feeds));
  step.fetches.resize(slots(graph.fetches));
  step.max_threads = std::max(1, request.max_threads);
  if (request.trace) step.trace = make_ref<TraceCollector>();
  for (auto& [key, value] : request.brought) {
    request.given.push_back(key);
    // An error says that the step was aborted, as the run will say.
    (void)found.rendezvous->give(key, std::move(value));
  }
  if (!request.given.empty()) found.rendezvous->expect(std::move(request.given));
  task_->counters->step_begun();
  if (feed_bytes != 0) task_->counters->feeds_received(feed_bytes);
  return found;
}

Ref<RunAnswer> Worker::find_answer(const Ref<Graph>& graph, int64_t step_id) const {
  MutexLock lock(mu_);
  const auto it = steps_.find(step_id);
  return it != steps_.end() && it->second.graph == graph ? it->second.answer : nullptr;
}

Result<Ref<UpdateLog>> Worker::begin_update(const RunGraphRequest& request) {
  if (request.update == UpdateId()) return Ref<UpdateLog>();
  int64_t before = 0;
  Result<Ref<UpdateLog>> log = updates_.begin(request.update, request.step_id, before);
  if (!log.ok() && before != 0 && before != request.step_id) {
    TaskStep earlier;
    {
      MutexLock lock(mu_);
      if (auto it = steps_.find(before); it != steps_.end()) earlier = it->second;
    }
    if (earlier.step) earlier.end(aborted("step ", before, " is tried again"));
  }
  return log;
}

void Worker::end_run(const Ref<Graph>& graph, UpdateId update) {
  if (update != UpdateId()) updates_.end(update);
  SessionState& session = *graph->session;
  {
    MutexLock lock(mu_);
    if (--session.running > 0 || !session.ended) return;
  }
  // What its kernels made after the session was told to end.
  clear_resources(session);
}

void Worker::run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                       UniqueFunction<void(Status, RunGraphResponse)> done) {
  const int64_t received = request.trace ? monotonic_nanos() : 0;
  end_steps(request.over_steps);
  Result<Ref<Graph>> graph = find_graph(request.graph_handle);
  if (!graph.ok()) return done(graph.status(), RunGraphResponse());
  const Ref<RunAnswer> answer =
      make_ref<RunAnswer>(timer_, bear_loss_ms_for(lost_after_ms()) * 1'000'000);
  Result<TaskStep> prepared = prepare_run(*graph, request, answer);
  if (!prepared.ok()) {
    const Ref<RunAnswer> known = find_answer(*graph, request.step_id);
    if (known) return known->ask(std::move(cancel), std::move(done));
    return done(prepared.status(), RunGraphResponse());
  }
  // From here on it is the answer that knows who asks, and for how long the run is wanted.
  answer->ask(std::move(cancel), std::move(done));
  cancel = answer->token();
  done = [answer](Status status, RunGraphResponse response) {
    answer->finish(std::move(status), std::move(response));
  };
  TaskStep run = *std::move(prepared);
  run.step->functions = (*graph)->session->functions;
  uint64_t ticket = 0;
  if (cancel) {
    // By bare pointer: the run takes the callback back before it ends.
    ticket = cancel->on_cancel([run, token = cancel.get()] { run.end(token->status()); });
    if (ticket == 0) {
      run.end(cancel->status());
      task_->counters->step_ended(/*failed=*/true);
      end_run(*graph, request.update);
      return done(cancel->status(), RunGraphResponse{.derived = true});
    }
  }
  auto finish = [self = Ref<Worker>(this), graph = *graph, rendezvous = run.rendezvous,
                 wanted = std::move(request.fetches), sends = std::move(request.sends),
                 update = request.update, in_pieces = request.in_pieces,
                 brought = request.brought.size(), cancel, ticket, started = run.began_ns, received,
                 done = std::move(done)](Step& step) mutable {
    if (ticket != 0) cancel->remove(ticket);
    RunGraphResponse response;
    // In pieces, who asks for a dead fetch is told so, and the rest of the run goes on.
    Status status = in_pieces ? step.error() : step.status();
    TaskCounters& counters = *self->task_->counters;
    counters.step_ended(!status.ok());
    if (status.ok()) {
      size_t bytes = 0;
      for (int position : wanted) {
        response.fetches.push_back(std::move(step.fetches[static_cast<size_t>(position)]));
        bytes += response.fetches.back().bytes();
      }
      if (bytes != 0) counters.fetches_sent(bytes);
    } else {
      response.derived = rendezvous->ended_from_outside();
    }
    if (step.trace) {
      response.events = step.trace->events();
      response.received_ns = received;
      response.answered_ns = monotonic_nanos();
    }
    step.hold_feeds({});
    step.fetches.clear();
    self->end_run(graph, update);
    response.prompt =
        graph->prompt && brought == graph->receives && self->timer_->now_ns() - started < kPromptNs;
    if (!status.ok() || sends.empty()) return done(std::move(status), std::move(response));
    self->take_sent(step.id, sends,
                    [done = std::move(done), response = std::move(response)](
                        Status taken, std::vector<Value> values) mutable {
                      response.sent = std::move(values);
                      done(std::move(taken), std::move(response));
                    });
  };
  if (request.in_pieces) {
    run_in_pieces(*(*graph)->plans, (*graph)->boundary, run.rendezvous, run.step,
                  std::move(finish));
  } else {
    (*graph)->plans->run_async(run.step, std::move(finish));
  }
}

struct Worker::Gathered : RefCounted {
  Mutex mu;
  Status error MR_GUARDED_BY(mu);
  std::vector<Value> values MR_GUARDED_BY(mu);
  size_t missing MR_GUARDED_BY(mu) = 0;
  ValuesDone done;

  void take(size_t i, const Status& status, Value value) {
    Status outcome;
    std::vector<Value> all;
    {
      MutexLock lock(mu);
      if (error.ok()) error = status;
      values[i] = std::move(value);
      if (--missing > 0) return;
      outcome = error;
      all.swap(values);
    }
    done(std::move(outcome), std::move(all));
  }
};

void Worker::take_sent(int64_t step_id, const std::vector<std::string>& keys, ValuesDone done) {
  const Ref<Gathered> gathered = make_ref<Gathered>();
  gathered->done = std::move(done);
  {
    MutexLock lock(gathered->mu);
    gathered->values.resize(keys.size());
    gathered->missing = keys.size();
  }
  const Ref<CancellationToken> now = make_ref<CancellationToken>();
  for (size_t i = 0; i < keys.size(); ++i) {
    recv_tensor({step_id, keys[i]}, now, [gathered, i](const Status& status, Value value) {
      gathered->take(i, status, std::move(value));
    });
  }
  // All that will be sent has been.
  now->cancel(invalid_argument("the graph on ", task_->name, " did not send all that was asked"));
}

void Worker::give_tensor(int64_t step_id, std::string key, Value value, StatusDone done) {
  Result<TaskStep> found = find_step(step_id);
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
      MR_TRY_ASSIGN(found, find_step(request.step_id));
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
                     " has restarted, its incarnation is ", hex(sender->info().incarnation));
    }
    traffic = &task_->counters->with_device(key.recv_device);
    MR_TRY_ASSIGN(found, find_step(request.step_id));
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
  Result<TaskStep> step = find_step(step_id);
  // ABORTED: the step is over already.
  if (!step.ok()) return done(step.status().code() == Code::kAborted ? ok_status() : step.status());
  if (!step->graph) watch_for_idle();
  step->end(reason);
  done(ok_status());
}

Worker::TaskStep Worker::take_step(int64_t step_id) {
  TaskStep found;
  if (auto it = steps_.find(step_id); it != steps_.end()) {
    found = std::move(it->second);
    steps_.erase(it);
  }
  if (!over_.insert(step_id).second) return found;
  over_order_.push_back(step_id);
  if (over_order_.size() > kRememberedSteps) {
    over_.erase(over_order_.front());
    over_order_.pop_front();
  }
  return found;
}

void Worker::cleanup_step(int64_t step_id, StatusDone done) {
  TaskStep found;
  Status status = [&]() -> Status {
    MutexLock lock(mu_);
    MR_TRY(stopped_);
    found = take_step(step_id);
    return ok_status();
  }();
  if (found.step) found.end(cancelled("step ", step_id, " is over on ", task_->name));
  done(std::move(status));
}

void Worker::end_steps(const std::vector<int64_t>& step_ids) {
  if (step_ids.empty()) return;
  std::vector<TaskStep> steps;
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    for (const int64_t id : step_ids) steps.push_back(take_step(id));
  }
  for (const TaskStep& step : steps) {
    if (step.step) step.end(cancelled("step ", step.step->id, " is over on ", task_->name));
  }
}

void Worker::delete_session(std::string session, StatusDone done) {
  if (Status reason = stopped(); !reason.ok()) return done(std::move(reason));
  end_session(session, cancelled("session ", session, " has ended"));
  done(ok_status());
}

void Worker::end_session(const std::string& name, const Status& reason) {
  Ref<SessionState> session;
  std::vector<Ref<Graph>> graphs;
  std::vector<TaskStep> steps;
  {
    MutexLock lock(mu_);
    leases_.drop(name);
    if (auto it = sessions_.find(name); it != sessions_.end()) {
      session = std::move(it->second);
      sessions_.erase(it);
      session->ended = true;
      std::erase_if(graphs_, [&](auto& graph) {
        if (graph.second->session != session) return false;
        graphs.push_back(std::move(graph.second));
        return true;
      });
      std::vector<int64_t> ids;
      for (const auto& [id, step] : steps_) {
        if (step.graph && step.graph->session == session) ids.push_back(id);
      }
      for (const int64_t id : ids) steps.push_back(take_step(id));
    }
  }
  for (const TaskStep& step : steps) step.end(reason);
  if (session) clear_resources(*session);
  graphs.clear();
  graph_bytes_->give_back(kGiveBackAtEndBytes);
}

void Worker::clear_resources(const SessionState& session) {
  std::vector<Ref<Device>> devices;
  bool own = false;
  {
    MutexLock lock(mu_);
    devices = session.devices;
    own = session.scope.own_devices();
  }
  for (const Ref<Device>& device : devices) {
    if (own) {
      device->resources().clear();
    } else {
      device->resources().clear_session(session.name);
    }
  }
}

void Worker::keep_session(KeepSessionRequest request, StatusDone done) {
  std::vector<Ref<Graph>> graphs;
  Status status = [&]() -> Status {
    MR_TRY(check_incarnation(request.incarnation));
    if (request.lease_ms == 0) {
      return invalid_argument("session ", request.session, ": expected a lease, got 0 ms");
    }
    MR_TRY(find_session(request.session, request.lease_ms, request.client).status());
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
  const int64_t at = timer_->now_ns() + delay_ns;
  if (at >= watch_at_ns_) return;
  if (watch_ticket_ != 0) timer_->remove(watch_ticket_);
  watch_at_ns_ = at;
  watch_ticket_ = timer_->schedule(delay_ns, [self = Ref<Worker>(this)] { self->watch(); });
}

void Worker::watch_for_idle() {
  MutexLock lock(mu_);
  if (stopped_.ok()) watch_later(idle_ns_);
}

void Worker::watch() {
  std::vector<std::pair<std::string, Status>> lapsed;
  const int64_t now = timer_->now_ns();
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    watch_ticket_ = 0;
    watch_at_ns_ = INT64_MAX;
    lapsed = leases_.take_lapsed(now);
    if (const int64_t next = leases_.next_lapse_ns(); next != INT64_MAX) watch_later(next - now);
  }
  for (const auto& [session, reason] : lapsed) {
    MR_LOG(kWarning, reason);
    end_session(session, reason);
  }
  forget_idle_steps(now);
}

void Worker::forget_idle_steps(int64_t now_ns) {
  std::vector<std::pair<int64_t, Ref<StepRendezvous>>> without_run;
  {
    MutexLock lock(mu_);
    for (const auto& [id, step] : steps_) {
      if (!step.graph) without_run.emplace_back(id, step.rendezvous);
    }
  }
  for (const auto& [id, rendezvous] : without_run) {
    // Who waits is a peer whose own step lives: it will be told when that ends.
    const bool waits = !rendezvous->waiting().empty();
    MutexLock lock(mu_);
    const auto it = steps_.find(id);
    if (!stopped_.ok() || it == steps_.end() || it->second.graph) continue;
    int64_t& idle_since = it->second.idle_ns;
    if (waits) {
      idle_since = -1;
    } else if (idle_since < 0) {
      idle_since = now_ns;
    } else if (now_ns - idle_since >= idle_ns_) {
      (void)take_step(id);
      continue;
    }
    watch_later(idle_ns_);
  }
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
  std::map<int64_t, TaskStep> steps;
  std::unordered_map<std::string, Ref<Graph>> graphs;
  std::unordered_map<std::string, Ref<SessionState>> sessions;
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    steps.swap(steps_);
    graphs.swap(graphs_);
    sessions.swap(sessions_);
    if (watch_ticket_ != 0) timer_->remove(watch_ticket_);
  }
  for (auto& [id, step] : steps) step.end(reason);
  collectives_->shut_down(reason);
  // State may hold what holds the device.
  for (auto& [name, session] : sessions) clear_resources(*session);
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
  std::vector<TaskStep> steps;
  WorkerActivity out;
  const int64_t now = timer_->now_ns();
  {
    MutexLock lock(mu_);
    for (const auto& [id, step] : steps_) {
      if (step_id == 0 || step_id == id) steps.push_back(step);
    }
    if (step_id == 0) {
      std::unordered_map<std::string_view, int> graphs;
      for (const auto& [handle, graph] : graphs_) ++graphs[graph->session->name];
      for (const auto& [name, lease] : leases_.known()) {
        out.sessions.push_back({name, lease.left_ms(now), graphs[name]});
      }
    }
  }
  std::vector<std::pair<int64_t, std::string>> together = collectives_->waits();
  for (const TaskStep& known : steps) {
    std::vector<std::string> waits = known.rendezvous->waiting();
    std::erase_if(together, [&](std::pair<int64_t, std::string>& wait) {
      if (wait.first != known.step->id) return false;
      waits.push_back(std::move(wait.second));
      return true;
    });
    for (std::string& kernel : known.rendezvous->waiting_kernels()) {
      waits.push_back(std::move(kernel));
    }
    WorkerActivity::Step& step = out.steps.emplace_back();
    step.id = known.step->id;
    if (known.graph) {
      step.session = known.graph->session->name;
      step.running_ms = (now - known.began_ns) / 1'000'000;
    }
    for (const std::string& wait : waits) {
      step.defined.push_back(known.graph ? known.graph->where_defined(wait) : "");
    }
    step.waits_for = std::move(waits);
  }
  if (step_id != 0) return out;
  // Of sessions without a cluster, and of groups that form here.
  for (auto& [step, wait] : together) {
    out.steps.push_back({.id = step, .waits_for = {std::move(wait)}, .defined = {""}});
  }
  out.clock_ns = now;
  out.up_ms = (now - began_ns_) / 1'000'000;
  task_->counters->tell(out);
  for (const Ref<Device>& device : task_->devices) add_queues(*device, out.queues);
  return out;
}

void Worker::get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) {
  if (Status reason = stopped(); !reason.ok()) return done(std::move(reason));
  done(activity(step_id));
}

}  // namespace millrace
