#include "millrace/distributed/remote_executable.h"

#include <atomic>

#include "millrace/base/hash.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/call_group.h"

namespace millrace {
namespace {

// 56 bits that no other master uses, below a top byte of 1.
int64_t fresh_step_id() {
  static const uint64_t seed = random_incarnation();
  static std::atomic<uint64_t> count{0};
  constexpr uint64_t kMark = uint64_t{1} << 56;
  uint64_t mixed = hash_combine(seed, count.fetch_add(1, std::memory_order_relaxed));
  return static_cast<int64_t>((mixed & (kMark - 1)) | kMark);
}

std::string describe(const Subgraph& graph) {
  std::string out;
  for (const SubNode& node : graph.nodes()) {
    std::vector<std::string> inputs;
    for (Output input : node.inputs) {
      const std::string& name = graph.node(input.node).name;
      inputs.push_back(input.index == 0 ? name : str_cat(name, ":", input.index));
    }
    for (NodeId input : node.control_inputs) inputs.push_back(str_cat("^", graph.node(input).name));
    out += str_cat("  ", node.name, " = ", node.op->name, "(", str_join(inputs, ", "), ") on ",
                   node.device, "\n");
  }
  return out;
}

}  // namespace

RemoteExecutable::~RemoteExecutable() {
  for (Part& part : parts_) {
    // Not waited for: a task that cannot be reached has forgotten the graph, or will never be asked
    // again.
    if (!part.handle.empty()) part.worker->deregister_graph(part.handle, [](const Status&) {});
  }
}

Status RemoteExecutable::add_part(const std::string& task, const Subgraph& graph) {
  Part part;
  part.task = task;
  MR_TRY_ASSIGN(part.worker, workers_->find(task));
  for (const SubNode& node : graph.nodes()) {
    if (!node.op->traits.argument && !node.op->traits.result) continue;
    MR_TRY_ASSIGN(int64_t position, node.attr<int64_t>("index"));
    (node.op->traits.argument ? part.feeds : part.fetches).push_back(static_cast<int>(position));
  }
  part.text = describe(graph);
  parts_.push_back(std::move(part));
  return ok_status();
}

Status RemoteExecutable::check_fetches(size_t count) const {
  std::vector<bool> found(count);
  for (const Part& part : parts_) {
    for (int position : part.fetches) {
      if (static_cast<size_t>(position) < count) found[static_cast<size_t>(position)] = true;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (!found[i]) return internal("fetch ", i, " is on no task");
  }
  return ok_status();
}

Status RemoteExecutable::register_parts(std::vector<RegisterGraphRequest> requests,
                                        int64_t timeout_ms) {
  MR_CHECK(requests.size() == parts_.size());
  Ref<CallGroup> group = make_ref<CallGroup>("register_graph");
  for (Part& part : parts_) group->expect(part.task);
  for (size_t i = 0; i < parts_.size(); ++i) {
    // Holds the executable: an answer that comes late still has its handle deregistered.
    parts_[i].worker->register_graph(
        std::move(requests[i]),
        [self = Ref<RemoteExecutable>(this), group, i](Result<std::string> handle) mutable {
          Part& part = self->parts_[i];
          std::string task = part.task;
          self->workers_->report(task, handle.status());
          Status status = handle.status();
          if (handle.ok()) part.handle = *std::move(handle);
          self = nullptr;
          group->answer(task, std::move(status));
        });
  }
  return group->wait(timeout_ms);
}

// One step under way.
struct RemoteExecutable::Run : RefCounted {
  Ref<const RemoteExecutable> owner;
  StepArgs args;
  const int64_t step_id = fresh_step_id();
  Ref<CancellationToken> calls = make_ref<CancellationToken>();
  uint64_t ticket = 0;  // of args.cancel
  UniqueFunction<void(Status)> done;

  Mutex mu;
  Status error MR_GUARDED_BY(mu);
  bool derived MR_GUARDED_BY(mu) = false;
  size_t running MR_GUARDED_BY(mu) = 0;
  std::vector<bool> answered MR_GUARDED_BY(mu);

  Run(const RemoteExecutable* executable, const StepArgs& step,
      UniqueFunction<void(Status)> on_done)
      : owner(executable), args(step), done(std::move(on_done)) {
    MutexLock lock(mu);
    running = owner->parts_.size();
    answered.resize(running);
  }

  std::string wait_key(size_t i) const {
    return str_cat("run_graph of step ", step_id, " on ", owner->parts_[i].task);
  }

  void start(size_t i) {
    const Part& part = owner->parts_[i];
    RunGraphRequest request;
    request.graph_handle = part.handle;
    request.step_id = step_id;
    for (int position : part.feeds) {
      request.feeds.emplace_back(position, args.feeds[static_cast<size_t>(position)]);
    }
    request.fetches = part.fetches;
    request.max_threads = args.max_threads;
    request.trace = args.trace != nullptr;
    if (args.rendezvous)
      args.rendezvous->recv(wait_key(i), nullptr, [](const Status&, const Value&) {});
    part.worker->run_graph(std::move(request), calls,
                           [run = Ref<Run>(this), i](Status status, RunGraphResponse response) {
                             run->part_ended(i, std::move(status), std::move(response));
                           });
  }

  void part_ended(size_t i, Status status, RunGraphResponse response) {
    const Part& part = owner->parts_[i];
    owner->workers_->report(part.task, status);
    if (args.rendezvous) {
      Value nothing;
      nothing.set_dead();
      // An error means that the run was aborted: then nobody asks what it waits for.
      (void)args.rendezvous->send(wait_key(i), std::move(nothing));
    }
    if (args.trace != nullptr) add_trace(response);
    if (status.ok() && response.fetches.size() != part.fetches.size()) {
      status = internal("task ", part.task, " answered ", response.fetches.size(),
                        " fetches, expected ", part.fetches.size());
    }
    if (status.ok()) {
      for (size_t f = 0; f < part.fetches.size(); ++f) {
        args.fetches[static_cast<size_t>(part.fetches[f])] = std::move(response.fetches[f]);
      }
    }
    {
      MutexLock lock(mu);
      answered[i] = true;
    }
    if (!status.ok()) fail(status, response.derived);
    bool last = false;
    {
      MutexLock lock(mu);
      last = --running == 0;
    }
    if (last) end();
  }

  // Times of another process's clock become times of ours.
  void add_trace(RunGraphResponse& response) {
    int64_t shift = response.wall_offset_ns - args.trace->wall_offset_ns();
    for (TraceEvent& event : response.events) {
      if (event.scheduled_ns != 0) event.scheduled_ns += shift;
      event.start_ns += shift;
      event.end_ns += shift;
      args.trace->record(std::move(event));
    }
  }

  void fail(const Status& status, bool status_derived) {
    // An abort may bring the last answer at once, and end() lets go of the executable.
    Ref<const RemoteExecutable> executable = owner;
    std::vector<size_t> others;
    {
      MutexLock lock(mu);
      bool first = error.ok();
      if (first || (derived && !status_derived)) {
        error = status;
        derived = status_derived;
      }
      if (!first) return;
      for (size_t i = 0; i < answered.size(); ++i) {
        if (!answered[i]) others.push_back(i);
      }
    }
    // The abort reaches a worker whose run_graph has not come yet; the token ends calls to a worker
    // that does not answer.
    for (size_t i : others) {
      executable->parts_[i].worker->abort_step(step_id, status, [](const Status&) {});
    }
    calls->cancel(status);
  }

  void end() {
    if (ticket != 0) args.cancel->remove(ticket);
    for (const Part& part : owner->parts_) part.worker->cleanup_step(step_id, [](const Status&) {});
    Status last;
    {
      MutexLock lock(mu);
      last = std::move(error);
    }
    // Before the caller hears of it: who then drops the executable knows it deregistered.
    owner = nullptr;
    UniqueFunction<void(Status)> callback = std::move(done);
    callback(std::move(last));
  }
};

void RemoteExecutable::run_async(const StepArgs& args, UniqueFunction<void(Status)> done) const {
  if (parts_.empty()) return done(ok_status());
  Ref<Run> run = make_ref<Run>(this, args, std::move(done));
  if (args.cancel) {
    run->ticket = args.cancel->on_cancel([run, cancel = args.cancel.get()] {
      run->fail(cancel->status(), /*status_derived=*/false);
    });
    if (run->ticket == 0) return run->done(args.cancel->status());
  }
  // The last answer may come at once, and with it the end of this executable.
  const size_t count = parts_.size();
  for (size_t i = 0; i < count; ++i) run->start(i);
}

Result<Ref<PartialRun>> RemoteExecutable::start_partial(const StepArgs&,
                                                        UniqueFunction<void(Status)>) const {
  return unimplemented(
      "partial_run on a cluster: partial runs work in sessions of one process only");
}

std::string RemoteExecutable::to_string() const {
  std::string out;
  for (const Part& part : parts_) {
    out += str_cat(part.task, " as graph ", part.handle, "\n", part.text);
  }
  return out;
}

}  // namespace millrace
