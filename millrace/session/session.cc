#include "millrace/session/session.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "millrace/base/file.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/ops/register_ops.h"
#include "millrace/runtime/boundary.h"
#include "millrace/runtime/memory_estimate.h"
#include "millrace/runtime/numerics.h"
#include "millrace/runtime/optimize.h"
#include "millrace/runtime/recompute.h"
#include "millrace/runtime/session_graph.h"
#include "millrace/session/plan_cache.h"
#include "millrace/session/session_backend.h"

namespace millrace {
namespace {

// How often a waiting run asks whether it is interrupted.
constexpr int64_t kInterruptPollMs = 100;

std::atomic<int64_t> next_session{1};

int64_t fresh_step_id() {
  static std::atomic<int64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// A partial run under way.
struct Partial {
  Ref<Prepared> prepared;
  Ref<PartialRun> run;
  Ref<Step> step;
  std::unordered_map<std::string, int> feeds, fetches;  // declared and not done, by name
  std::vector<bool> fed;
};

// Memory that the caller may keep and write: what somebody else still holds is copied.
Status own_fetches(std::vector<Tensor>& fetches) {
  for (Tensor& t : fetches) {
    if (!t.valid() || t.writable()) continue;
    MR_TRY_ASSIGN(t, t.clone());
  }
  return ok_status();
}

// Waits for a fetch of a partial run, which is cancelled when the caller is interrupted.
Result<Tensor> fetch(Partial& partial, int position, Deadline deadline, bool (*interrupted)()) {
  while (interrupted != nullptr) {
    const Deadline turn = Deadline::after_millis(kInterruptPollMs);
    if (deadline < turn) break;
    Result<Tensor> value = partial.run->fetch(position, turn);
    if (value.ok() || !turn.expired()) return value;
    if (interrupted()) {
      partial.step->cancel->cancel(cancelled("the run was interrupted"));
      return partial.step->cancel->status();
    }
  }
  return partial.run->fetch(position, deadline);
}

// Feeds and fetches, by position, in a partial run.
Result<std::vector<Tensor>> piece(Partial& partial, std::vector<std::pair<int, Tensor>>& feeds,
                                  const std::vector<int>& fetches, int64_t timeout_ms,
                                  bool (*interrupted)()) {
  for (auto& [position, value] : feeds) MR_TRY(partial.run->feed(position, std::move(value)));
  const Deadline deadline = timeout_ms > 0 ? Deadline::after_millis(timeout_ms) : Deadline::none();
  std::vector<Tensor> out;
  for (int position : fetches) {
    MR_TRY_ASSIGN(Tensor value, fetch(partial, position, deadline, interrupted));
    MR_TRY_ASSIGN(value, value.clone());
    out.push_back(std::move(value));
  }
  return out;
}

// Waits until the step is over; false when the caller leaves before, at the deadline or because of
// a signal, and the step has been told to stop.
bool wait_for(Step& step, bool (*interrupted)(), int64_t timeout_ms) {
  while (true) {
    const Deadline turn = interrupted == nullptr
                              ? step.deadline
                              : std::min(step.deadline, Deadline::after_millis(kInterruptPollMs));
    if (step.wait(turn)) return true;
    if (interrupted == nullptr || step.deadline.expired()) break;
    if (!interrupted()) continue;
    step.cancel->cancel(cancelled("the run was interrupted"));
    return false;
  }
  std::vector<std::string> waiting = step.rendezvous->waiting();
  for (std::string& kernel : step.rendezvous->waiting_kernels()) {
    waiting.push_back(std::move(kernel));
  }
  step.cancel->cancel(deadline_exceeded(
      "Timed out waiting for notification: the run did not finish in ", timeout_ms, " ms",
      waiting.empty() ? "" : "; it waits for ", str_join(waiting, ", ")));
  return false;
}

}  // namespace

struct Session::Impl {
  explicit Impl(SessionOptions session_options)
      : options(std::move(session_options)), plans(options.max_plan_bytes) {}

  const SessionOptions options;
  PlanCache plans;
  std::string name;
  Ref<SessionBackend> backend;
  Ref<FunctionRunner> functions;  // null: kernels cannot call functions
  Ref<CancellationToken> closing = make_ref<CancellationToken>();

  Mutex graph_mu;
  std::unique_ptr<SessionGraph> graph MR_GUARDED_BY(graph_mu);
  Ref<Graph> client_graph;
  std::atomic<int> taken{0};            // nodes of the graph that `graph` knows
  std::atomic<int64_t> revision{0};     // of the graph, when `graph` last looked
  std::atomic<bool> shapes_hold{true};  // SessionGraph::shapes_hold(), likewise

  Mutex shape_plan_mu;  // held while a plan is made that runs wait for

  Mutex mu;
  CondVar idle;
  bool closed MR_GUARDED_BY(mu) = false;
  std::atomic<int> running{0};  // runs that close() waits for
  std::unordered_map<std::string, std::shared_ptr<Partial>> partials MR_GUARDED_BY(mu);
  int64_t next_partial MR_GUARDED_BY(mu) = 1;

  Status check_open() {
    MR_TRY(ThreadPool::global().check_usable());
    if (!closing->cancelled()) [[likely]]
      return ok_status();
    return failed_precondition("Session is closed.");
  }

  Status extend() {
    int64_t seen = client_graph->revision();
    if (client_graph->num_nodes() <= taken.load(std::memory_order_acquire) &&
        seen == revision.load(std::memory_order_acquire)) {
      return ok_status();
    }
    MutexLock lock(graph_mu);
    int count = client_graph->num_nodes();
    MR_TRY(graph->extend());
    shapes_hold.store(graph->shapes_hold(), std::memory_order_release);
    taken.store(count, std::memory_order_release);
    revision.store(seen, std::memory_order_release);
    return ok_status();
  }

  Result<Ref<Prepared>> prepare(const Signature& signature);
  Result<Ref<Prepared>> build(const Signature& signature);
  // The part of the graph that a signature needs, placed; no pass has seen it.
  Status place_graph(Subgraph& graph, const Signature& signature);
  OptimizeOptions optimize_options(int level);
  // Runs the passes up to a level over a placed graph, but those that are last.
  Status rewrite(Subgraph& graph, int level);
  // Those that are last, or what a memory limit asks for.
  Status finish(Subgraph& graph);
  // Finishes a graph that was rewritten, and makes what is left ready to run.
  Result<Ref<Executable>> make_executable(Subgraph graph, const Signature& signature);
  // What a run of a graph that was rewritten is thought to hold, for people.
  Result<std::string> explain_memory(Subgraph graph);

  // What runs these feeds: a plan for their shapes where there is one, else the general one.
  const Executable& executable_for(const std::shared_ptr<Impl>& self, const Prepared& prepared,
                                   std::span<const Tensor> feeds) {
    if (!prepared.shapes) [[likely]]
      return *prepared.executable;
    if (const Executable* found = find_shape_plan(prepared, feeds)) return *found;
    if (options.memory_limit > 0) return limited_executable(prepared, feeds);
    if (prepared.shapes->open() && prepared.shapes->count(feeds)) {
      make_shape_plan_later(self, prepared, feeds);
    }
    return *prepared.executable;
  }
  const Executable* find_shape_plan(const Prepared& prepared, std::span<const Tensor> feeds) {
    return prepared.shapes->find(feeds, shapes_hold.load(std::memory_order_acquire));
  }
  // The same for a session with a limit: no run of the general plan before these shapes have one.
  const Executable& limited_executable(const Prepared& prepared, std::span<const Tensor> feeds);
  void make_shape_plan_later(const std::shared_ptr<Impl>& self, const Prepared& prepared,
                             std::span<const Tensor> feeds);
  Status make_shape_plan(const Prepared& prepared, std::vector<Shape> feeds);

  // Counts a run that close() must wait for.
  Status begin_run() {
    running.fetch_add(1);
    if (!closing->cancelled()) [[likely]]
      return ok_status();
    end_run();
    return failed_precondition("Session is closed.");
  }
  void end_run() {
    if (running.fetch_sub(1) != 1 || !closing->cancelled()) [[likely]]
      return;
    MutexLock lock(mu);
    idle.notify_all();
  }

  Status check_feeds(const Prepared& prepared, std::span<const Tensor> feeds);
  Status run(std::shared_ptr<Impl> self, const Prepared& prepared, std::span<const Tensor> feeds,
             std::vector<Tensor>& fetches, const RunOptions& run_options, RunMetadata* metadata);
  Status run_shared(std::shared_ptr<Impl> self, const Prepared& prepared,
                    const Executable& executable, std::span<const Tensor> feeds,
                    std::vector<Tensor>& fetches, const RunOptions& run_options,
                    RunMetadata* metadata, int64_t timeout_ms);
  int max_threads() const { return options.threads > 0 ? options.threads : 1 << 20; }
  // A step for a run on the caller's thread: the one of an earlier run, where there is one.
  Ref<Step> straight_step(const Prepared& prepared) {
    Step* spare = prepared.spare_step.exchange(nullptr, std::memory_order_acq_rel);
    if (spare != nullptr) {
      spare->id = fresh_step_id();
      return Ref<Step>::adopt(spare);
    }
    Ref<Step> step = make_ref<Step>(fresh_step_id());
    step->max_threads = max_threads();
    step->cancel = closing;
    step->functions = functions;
    return step;
  }
  // Keeps the step of a run without errors, unless somebody holds it still.
  static void keep_step(const Prepared& prepared, Ref<Step> step) {
    if (!step->unique()) return;
    step->feeds = {};
    Ref<Step>::adopt(prepared.spare_step.exchange(step.detach(), std::memory_order_acq_rel));
  }
  // A step that may go on without its caller.
  Ref<Step> shared_step(const Prepared& prepared) {
    Ref<Step> step = Step::make_shared(fresh_step_id(), closing);
    step->max_threads = max_threads();
    step->functions = functions;
    step->fetches.resize(prepared.signature.fetches.size());
    return step;
  }
};

Result<Ref<Prepared>> Session::Impl::prepare(const Signature& signature) {
  return plans.find_or_build(signature, [&] { return build(signature); });
}

Result<Ref<Prepared>> Session::Impl::build(const Signature& signature) {
  Subgraph pruned(client_graph->registry());
  {
    MutexLock lock(graph_mu);
    MR_TRY_ASSIGN(pruned, graph->prune(signature));
  }
  Ref<Prepared> prepared = make_ref<Prepared>();
  prepared->signature = signature;
  prepared->feed_types.resize(signature.feeds.size());
  MR_TRY_ASSIGN(Boundary boundary,
                read_boundary(pruned, signature.feeds.size(), signature.fetches.size()));
  for (const auto& [position, type] : boundary.feeds) {
    prepared->feed_types[static_cast<size_t>(position)] = type;
  }
  prepared->fetch_dependencies = millrace::fetch_dependencies(pruned, signature);
  MR_TRY(place_graph(pruned, signature));
  // Before shapes are told, so that close passes do the same in all plans.
  MR_TRY(rewrite(pruned, options.optimizer_level));
  const bool wanted =
      options.memory_limit > 0 || (options.shape_plans && options.optimizer_level > 0);
  // Without feeds there are the shapes of variables still, which let work stay on a device that
  // would go to the host and back for a shape.
  const bool tells_more = !boundary.feeds.empty() ||
                          std::ranges::any_of(backend->devices().devices(),
                                              [](const Device::Info& d) { return d.own_memory; });
  if (wanted && tells_more && backend->prepares_again()) {
    prepared->shapes = std::make_unique<ShapePlans>(pruned);
  }
  MR_TRY_ASSIGN(prepared->executable, make_executable(std::move(pruned), signature));
  return prepared;
}

Status Session::Impl::place_graph(Subgraph& graph, const Signature& signature) {
  PlaceOptions place_options;
  place_options.soft = options.soft_placement;
  place_options.log = options.log_placement;
  MR_TRY(place(graph, backend->devices(), place_options));
  return signature.check_numerics ? add_numerics_checks(graph) : ok_status();
}

OptimizeOptions Session::Impl::optimize_options(int level) {
  OptimizeOptions out;
  out.level = level;
  out.disabled_passes = options.disabled_passes;
  out.cpu_precision = options.cpu_precision;
  out.gpu_precision = options.gpu_precision;
  out.cpu = &backend->host_device();
  return out;
}

Status Session::Impl::rewrite(Subgraph& graph, int level) {
  OptimizeOptions passes = optimize_options(level);
  passes.finish = false;
  return optimize(graph, passes);
}

Status Session::Impl::finish(Subgraph& graph) {
  // A node that computes many values holds them all at once.
  if (options.memory_limit > 0) return recompute(graph, options.memory_limit).status();
  return finish_optimizing(graph, optimize_options(options.optimizer_level));
}

Result<Ref<Executable>> Session::Impl::make_executable(Subgraph graph, const Signature& signature) {
  MR_TRY(finish(graph));
  place_control_flow(graph);
  return backend->prepare(graph, signature, name);
}

Result<std::string> Session::Impl::explain_memory(Subgraph graph) {
  MR_TRY(finish(graph));
  MR_TRY_ASSIGN(const MemoryEstimate estimate, estimate_memory(graph));
  return to_string(estimate, graph);
}

const Executable& Session::Impl::limited_executable(const Prepared& prepared,
                                                    std::span<const Tensor> feeds) {
  MutexLock lock(shape_plan_mu);
  if (const Executable* found = find_shape_plan(prepared, feeds)) return *found;
  if (!prepared.shapes->open()) return *prepared.executable;
  if (Status made = make_shape_plan(prepared, shapes_of(feeds)); !made.ok()) {
    MR_LOG(kWarning, "no plan was made within the memory limit: ", made);
    prepared.shapes->give_up();
  }
  const Executable* const found = find_shape_plan(prepared, feeds);
  return found != nullptr ? *found : *prepared.executable;
}

// A run that close() waits for, as it uses the session's devices.
void Session::Impl::make_shape_plan_later(const std::shared_ptr<Impl>& self,
                                          const Prepared& prepared, std::span<const Tensor> feeds) {
  ThreadPool::global().schedule_blocking(
      [self, prepared = Ref<const Prepared>(&prepared), shapes = shapes_of(feeds)]() mutable {
        if (!self->begin_run().ok()) return;
        if (Status made = self->make_shape_plan(*prepared, std::move(shapes)); !made.ok()) {
          MR_LOG(kWarning, "no plan was made for the shapes of what is fed: ", made);
          prepared->shapes->give_up();
        }
        prepared = nullptr;
        self->end_run();
      });
}

Status Session::Impl::make_shape_plan(const Prepared& prepared, std::vector<Shape> feeds) {
  const bool variables_hold = shapes_hold.load(std::memory_order_acquire);
  MR_TRY_ASSIGN(Subgraph graph, prepared.shapes->graph_for(feeds, variables_hold));
  MR_TRY(rewrite(graph, std::min(options.optimizer_level, 1)));
  MR_TRY_ASSIGN(Ref<Executable> made, make_executable(std::move(graph), prepared.signature));
  const bool same = made->to_string() == prepared.executable->to_string();
  // Within a limit other shapes may need another plan, and none is left out.
  if (options.memory_limit == 0 && (same || !plans.has_room(made->bytes()))) {
    prepared.shapes->give_up();
  } else {
    prepared.shapes->add(std::move(feeds), variables_hold, std::move(made));
  }
  plans.weigh(prepared);
  return ok_status();
}

Status Session::Impl::check_feeds(const Prepared& prepared, std::span<const Tensor> feeds) {
  const Signature& signature = prepared.signature;
  if (feeds.size() != signature.feeds.size()) {
    return invalid_argument("expected ", signature.feeds.size(), " feeds, got ", feeds.size());
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (feeds[i].dtype() == prepared.feed_types[i]) continue;
    return internal("feed '", signature.feeds[i], "' has type ", feeds[i].dtype(),
                    ", but the tensor's type is ", prepared.feed_types[i]);
  }
  return ok_status();
}

namespace {

bool is_traced(const RunOptions& run_options) {
  return run_options.trace || !run_options.trace_path.empty();
}

// Writes what a run's trace has to where the options and `metadata` (may be null) want it.
Status tell_trace(const TraceCollector& trace, const Executable& executable,
                  const RunOptions& run_options, RunMetadata* metadata) {
  std::vector<TraceEvent> events = trace.events();
  if (!run_options.trace_path.empty()) {
    MR_TRY(
        write_file_atomically(posix_file_system(), run_options.trace_path, chrome_trace(events)));
  }
  if (metadata == nullptr) return ok_status();
  metadata->memory = memory_of(events);
  metadata->events = std::move(events);
  metadata->wall_offset_ns = trace.wall_offset_ns();
  metadata->plans = executable.to_string();
  return ok_status();
}

}  // namespace

Status Session::Impl::run(std::shared_ptr<Impl> self, const Prepared& prepared,
                          std::span<const Tensor> feeds, std::vector<Tensor>& fetches,
                          const RunOptions& run_options, RunMetadata* metadata) {
  MR_TRY(check_open());
  MR_TRY(check_feeds(prepared, feeds));
  int64_t timeout_ms = run_options.timeout_ms != 0 ? run_options.timeout_ms : options.timeout_ms;
  const bool plain = timeout_ms <= 0 && !run_options.cancel;
  const Executable& executable = executable_for(self, prepared, feeds);
  if (!plain || !executable.straight(options.gear)) {
    return run_shared(std::move(self), prepared, executable, feeds, fetches, run_options, metadata,
                      timeout_ms);
  }
  MR_TRY(begin_run());
  Ref<Step> step = straight_step(prepared);
  step->interrupted = run_options.interrupted;
  step->feeds = feeds;
  step->fetches.swap(fetches);
  step->fetches.assign(prepared.signature.fetches.size(), Tensor());
  if (is_traced(run_options)) [[unlikely]]
    step->trace = make_ref<TraceCollector>();
  const Ref<TraceCollector> trace = step->trace;
  Status status = executable.run_straight(*step);
  step->trace = nullptr;
  fetches.swap(step->fetches);
  if (status.ok()) keep_step(prepared, std::move(step));
  end_run();
  if (trace) MR_TRY(tell_trace(*trace, executable, run_options, metadata));
  MR_TRY(status);
  return own_fetches(fetches);
}

Status Session::Impl::run_shared(std::shared_ptr<Impl> self, const Prepared& prepared,
                                 const Executable& chosen, std::span<const Tensor> feeds,
                                 std::vector<Tensor>& fetches, const RunOptions& run_options,
                                 RunMetadata* metadata, int64_t timeout_ms) {
  MR_TRY(begin_run());
  Ref<Step> step = shared_step(prepared);
  step->rendezvous->update = run_options.update;
  step->hold_feeds({feeds.begin(), feeds.end()});
  step->deadline = timeout_ms > 0 ? Deadline::after_millis(timeout_ms) : Deadline::none();
  if (is_traced(run_options)) step->trace = make_ref<TraceCollector>();

  // A user's token outlives the run, so it is asked to forget it.
  uint64_t ticket = 0;
  if (run_options.cancel) {
    Ref<CancellationToken> user = run_options.cancel;
    Ref<CancellationToken> mine = step->cancel;
    ticket = user->on_cancel([user, mine] { mine->cancel(user->status()); });
    if (ticket == 0) mine->cancel(user->status());
  }

  Ref<const Executable> executable(&chosen);
  auto start = [executable, step, self] {
    executable->run_async(step, [self](Step&) { self->end_run(); });
  };
  // A caller who may leave early does not run steps itself.
  bool may_leave = timeout_ms > 0 || run_options.cancel || run_options.interrupted != nullptr;
  if (may_leave && executable->runs_on_caller()) {
    ThreadPool::global().schedule(start);
  } else {
    start();
  }

  const bool over = wait_for(*step, run_options.interrupted, timeout_ms);
  if (ticket != 0) run_options.cancel->remove(ticket);
  if (step->trace && over) MR_TRY(tell_trace(*step->trace, *executable, run_options, metadata));
  MR_TRY(over ? step->status() : step->cancel->status());
  fetches = std::move(step->fetches);
  step->hold_feeds({});  // what they own may be what keeps a fetch from being the caller's alone
  return own_fetches(fetches);
}

Session::Session(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() { (void)close(); }

Result<std::unique_ptr<Session>> Session::create(Ref<Graph> graph, SessionOptions options) {
  if (!graph) return invalid_argument("a session needs a graph, got none");
  MR_TRY(ThreadPool::global().check_usable());
  MR_TRY(register_ops());
  MR_TRY(disabled_passes(options.disabled_passes).status());
  auto impl = std::make_shared<Impl>(std::move(options));
  MR_TRY_ASSIGN(impl->backend, make_session_backend(impl->options));
  impl->name = str_cat("session_", next_session.fetch_add(1));
  impl->functions = impl->backend->make_function_runner(*graph, impl->name);
  impl->client_graph = graph;
  PlaceOptions place_options;
  place_options.soft = impl->options.soft_placement;
  {
    MutexLock lock(impl->graph_mu);
    impl->graph =
        std::make_unique<SessionGraph>(std::move(graph), impl->backend->devices(), place_options);
  }
  MR_TRY(impl->extend());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Status Session::extend() {
  MR_TRY(impl_->check_open());
  return impl_->extend();
}

Result<std::vector<Tensor>> Session::run(const Feeds& feeds,
                                         const std::vector<std::string>& fetches,
                                         const std::vector<std::string>& targets,
                                         const RunOptions& options, RunMetadata* metadata) {
  MR_TRY(impl_->check_open());
  MR_TRY(impl_->extend());
  Signature signature;
  std::vector<Tensor> values;
  for (const auto& [name, value] : feeds) {
    signature.feeds.push_back(name);
    values.push_back(value);
  }
  signature.fetches = fetches;
  signature.targets = targets;
  MR_TRY_ASSIGN(Ref<Prepared> prepared, impl_->prepare(signature));
  std::vector<Tensor> out;
  MR_TRY(impl_->run(impl_, *prepared, values, out, options, metadata));
  return out;
}

struct Callable::Impl {
  std::shared_ptr<Session::Impl> session;
  Ref<Prepared> prepared;
  RunOptions options;
};

int64_t Callable::bytes() const { return impl_->prepared->bytes(); }

Callable::Callable() = default;
Callable::~Callable() = default;

Status Callable::run(std::span<const Tensor> feeds, std::vector<Tensor>& fetches,
                     RunMetadata* metadata, const RunOptions* options) {
  return impl_->session->run(impl_->session, *impl_->prepared, feeds, fetches,
                             options != nullptr ? *options : impl_->options, metadata);
}

Result<std::shared_ptr<Callable>> Session::make_callable(const Signature& signature,
                                                         const RunOptions& options) {
  MR_TRY(impl_->check_open());
  MR_TRY(impl_->extend());
  auto callable = std::make_shared<Callable>();
  callable->impl_ = std::make_unique<Callable::Impl>();
  callable->impl_->session = impl_;
  callable->impl_->options = options;
  MR_TRY_ASSIGN(callable->impl_->prepared, impl_->prepare(signature));
  return callable;
}

Result<std::string> Session::partial_run_setup(const Signature& signature) {
  MR_TRY(impl_->check_open());
  MR_TRY(impl_->extend());
  auto partial = std::make_shared<Partial>();
  MR_TRY_ASSIGN(partial->prepared, impl_->prepare(signature));
  for (size_t i = 0; i < signature.feeds.size(); ++i) {
    partial->feeds[signature.feeds[i]] = static_cast<int>(i);
  }
  for (size_t i = 0; i < signature.fetches.size(); ++i) {
    partial->fetches[signature.fetches[i]] = static_cast<int>(i);
  }
  partial->fed.assign(signature.feeds.size(), false);
  {
    MutexLock lock(impl_->mu);
    if (impl_->partials.size() >= static_cast<size_t>(impl_->options.max_partial_runs)) {
      return resource_exhausted("a session may have ", impl_->options.max_partial_runs,
                                " partial runs open at once, and has");
    }
  }
  MR_TRY(impl_->begin_run());
  Ref<Step> step = impl_->shared_step(*partial->prepared);
  partial->step = step;
  Result<Ref<PartialRun>> run = partial->prepared->executable->start_partial(
      std::move(step), [impl = impl_](Step&) { impl->end_run(); });
  if (!run.ok()) {
    impl_->end_run();
    return run.status();
  }
  partial->run = *run;
  MutexLock lock(impl_->mu);
  std::string handle = str_cat(impl_->name, "_partial_", impl_->next_partial++);
  impl_->partials.emplace(handle, std::move(partial));
  return handle;
}

Result<std::vector<Tensor>> Session::partial_run(const std::string& handle, const Feeds& feeds,
                                                 const std::vector<std::string>& fetches,
                                                 const RunOptions& options) {
  MR_TRY(impl_->check_open());
  std::vector<std::pair<int, Tensor>> fed;
  std::vector<int> wanted;
  std::shared_ptr<Partial> partial;
  {
    MutexLock lock(impl_->mu);
    auto it = impl_->partials.find(handle);
    if (it == impl_->partials.end()) {
      return invalid_argument("no partial run is called '", handle, "', or it is over");
    }
    partial = it->second;
    const Prepared& prepared = *partial->prepared;
    std::vector<bool> after = partial->fed;
    for (const auto& [name, value] : feeds) {
      auto f = partial->feeds.find(name);
      if (f == partial->feeds.end()) {
        return invalid_argument("feed '", name,
                                "' was not declared for this partial run, or was fed already");
      }
      DType type = prepared.feed_types[static_cast<size_t>(f->second)];
      if (value.dtype() != type) {
        return internal("feed '", name, "' has type ", value.dtype(), ", but the tensor's type is ",
                        type);
      }
      after[static_cast<size_t>(f->second)] = true;
      fed.emplace_back(f->second, value);
    }
    for (const std::string& name : fetches) {
      auto f = partial->fetches.find(name);
      if (f == partial->fetches.end()) {
        return invalid_argument("fetch '", name,
                                "' was not declared for this partial run, or was fetched already");
      }
      for (int feed : prepared.fetch_dependencies[static_cast<size_t>(f->second)]) {
        if (after[static_cast<size_t>(feed)]) continue;
        return invalid_argument("fetch '", name, "' depends on feed '",
                                prepared.signature.feeds[static_cast<size_t>(feed)],
                                "', which has not been fed yet");
      }
      wanted.push_back(f->second);
    }
    for (const auto& [name, value] : feeds) partial->feeds.erase(name);
    for (const std::string& name : fetches) partial->fetches.erase(name);
    partial->fed = std::move(after);
    if (partial->feeds.empty() && partial->fetches.empty()) impl_->partials.erase(it);
  }
  uint64_t ticket = 0;
  if (options.cancel) {
    Ref<CancellationToken> user = options.cancel;
    ticket =
        user->on_cancel([user, mine = partial->step->cancel] { mine->cancel(user->status()); });
    if (ticket == 0) partial->step->cancel->cancel(user->status());
  }
  const int64_t timeout_ms =
      options.timeout_ms != 0 ? options.timeout_ms : impl_->options.timeout_ms;
  Result<std::vector<Tensor>> out = piece(*partial, fed, wanted, timeout_ms, options.interrupted);
  if (ticket != 0) options.cancel->remove(ticket);
  // A run that has failed is over, whatever of it was not asked for.
  if (partial->step->cancel->cancelled()) {
    MutexLock lock(impl_->mu);
    impl_->partials.erase(handle);
  }
  return out;
}

Status Session::close() {
  bool first = false;
  {
    MutexLock lock(impl_->mu);
    first = !impl_->closed;
    impl_->closed = true;
  }
  // A forked child has none of the threads that would end what runs.
  if (!ThreadPool::global().check_usable().ok()) return ok_status();
  impl_->closing->cancel(cancelled("explicit call to Session::close()"));
  // Either a run that begins now sees it, or what follows sees that run.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  {
    MutexLock lock(impl_->mu);
    while (impl_->running.load() > 0) impl_->idle.wait(impl_->mu);
    impl_->partials.clear();
  }
  impl_->plans.clear();
  if (first) impl_->backend->close(impl_->name);
  return ok_status();
}

std::vector<Device::Info> Session::list_devices() const {
  return impl_->backend->devices().devices();
}

Status Session::reset(std::span<const std::string> containers) {
  MR_TRY(impl_->check_open());
  return impl_->backend->reset(containers);
}

Result<std::string> Session::explain(const Signature& signature) {
  MR_TRY(impl_->check_open());
  MR_TRY(impl_->extend());
  MR_TRY_ASSIGN(Ref<Prepared> prepared, impl_->prepare(signature));
  std::string text = prepared->executable->to_string() + prepared->executable->history();
  if (prepared->shapes) text += prepared->shapes->to_string();
  Subgraph graph(impl_->client_graph->registry());
  {
    MutexLock lock(impl_->graph_mu);
    MR_TRY_ASSIGN(graph, impl_->graph->prune(signature));
  }
  MR_TRY(impl_->place_graph(graph, signature));
  MR_TRY(impl_->rewrite(graph, impl_->options.optimizer_level));
  MR_TRY_ASSIGN(const std::string memory, impl_->explain_memory(std::move(graph)));
  return text + memory;
}

}  // namespace millrace
