#include "millrace/distributed/remote_executable.h"

#include <map>

#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/repeated_run.h"
#include "millrace/kernel/device_name.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

// Larger tensors had better come while others are still computed.
constexpr size_t kHandedBytes = size_t{256} << 10;

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
                   graph.device_name(node), "\n");
  }
  return out;
}

}  // namespace

RemoteExecutable::~RemoteExecutable() {
  for (Part& part : parts_) {
    if (part.handle.empty()) continue;
    // Not waited for: a task that cannot be reached is told when it can.
    part.worker->deregister_graph(part.handle, [keeper = keeper_, task = part.task,
                                                handle = part.handle](const Status& status) {
      if (status.code() == Code::kUnavailable) keeper->tell_later(task, handle);
    });
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
  for (const SubNode& node : graph.nodes()) {
    if (!node.erased && node.origin != 0) origins_.emplace(node.name, node.origin);
  }
  MR_TRY_ASSIGN(part.sends, find_sends(task, graph));
  part.text = describe(graph);
  parts_.push_back(std::move(part));
  return ok_status();
}

Result<std::unique_ptr<RemoteExecutable::Sends>> RemoteExecutable::find_sends(
    const std::string& task, const Subgraph& graph) const {
  if (task == own_task_) return nullptr;
  MR_TRY_ASSIGN(const Ref<WorkerInterface> own, workers_->find(own_task_));
  if (own->needs_lease()) return nullptr;
  auto out = std::make_unique<Sends>();
  for (const SubNode& node : graph.nodes()) {
    if (!node.op->traits.send) continue;
    RendezvousKey key;
    MR_TRY_ASSIGN(key.send_device, node.attr<std::string>("send_device"));
    MR_TRY_ASSIGN(key.recv_device, node.attr<std::string>("recv_device"));
    MR_TRY_ASSIGN(key.tensor_name, node.attr<std::string>("tensor_name"));
    MR_TRY_ASSIGN(const int64_t incarnation, node.attr<int64_t>("send_device_incarnation"));
    key.incarnation = static_cast<uint64_t>(incarnation);
    MR_TRY_ASSIGN(const DeviceName receiver, DeviceName::parse(key.recv_device));
    // A graph that waits for nothing has no loops: this is the key of its only iteration.
    if (receiver.task_name() == own_task_) out->all.emplace_back().key = key.to_string();
  }
  if (out->all.empty()) return nullptr;
  return out;
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

Ref<CallGroup> RemoteExecutable::register_parts(std::vector<RegisterGraphRequest> requests) {
  MR_CHECK(requests.size() == parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].graph_bytes = static_cast<int64_t>(requests[i].graph_def.size());
  }
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
  return group;
}

// The calls to the tasks of one step: its parts.
struct RemoteExecutable::Calls : Waiting {
  Ref<const RemoteExecutable> owner;
  const Ref<Step> step;
  const int64_t step_id;  // as the tasks know it
  const Ref<CancellationToken> token = make_ref<CancellationToken>();
  uint64_t wait = 0;    // of the watch
  uint64_t ticket = 0;  // of step->cancel

  Mutex mu;
  Status error MR_GUARDED_BY(mu);
  bool derived MR_GUARDED_BY(mu) = false;
  std::vector<bool> answered MR_GUARDED_BY(mu);
  // By part: what its task was told to clean up with this call.
  std::vector<std::vector<int64_t>> over_steps;
  // By part: what comes with its answer, for the session's own task.
  std::vector<std::vector<Sends::Send*>> handed;

  Calls(const RemoteExecutable* executable, Ref<Step> run)
      : owner(executable),
        step(std::move(run)),
        step_id(executable->step_ids_->next()),
        over_steps(executable->parts_.size()),
        handed(executable->parts_.size()) {
    for (size_t i = 0; i < handed.size(); ++i) {
      Sends* sends = owner->parts_[i].sends.get();
      if (!sends || !sends->prompt.load(std::memory_order_relaxed)) continue;
      for (Sends::Send& send : sends->all) {
        if (!send.large.load(std::memory_order_relaxed)) handed[i].push_back(&send);
      }
    }
    MutexLock lock(mu);
    answered.resize(owner->parts_.size());
  }

  std::string wait_key(size_t i) const {
    return str_cat("run_graph of step ", step_id, " on ", owner->parts_[i].task);
  }

  // The tasks that have not answered say what they wait for; those that do not say so are named.
  void tell(int64_t waited_ms) override;

  void start(size_t i) {
    const Part& part = owner->parts_[i];
    RunGraphRequest request;
    request.graph_handle = part.handle;
    request.step_id = step_id;
    for (int position : part.feeds) {
      request.feeds.emplace_back(position, step->feeds[static_cast<size_t>(position)]);
    }
    request.fetches = part.fetches;
    request.max_threads = step->max_threads;
    request.trace = static_cast<bool>(step->trace);
    for (const Sends::Send* send : handed[i]) request.sends.push_back(send->key);
    if (part.task == owner->own_task_) {
      for (const auto& sends : handed) {
        for (const Sends::Send* send : sends) request.given.push_back(send->key);
      }
    }
    request.over_steps = over_steps[i] = owner->keeper_->take_over_steps(part.task);
    request.update = step->rendezvous->update;
    step->rendezvous->recv(wait_key(i), nullptr, [](const Status&, const Value&) {});
    run_graph_surely(part.worker, owner->timer_, std::move(request), token,
                     [calls = Ref<Calls>(this), i](Status status, RunGraphResponse response) {
                       calls->part_ended(i, std::move(status), std::move(response));
                     });
  }

  void part_ended(size_t i, Status status, RunGraphResponse response) {
    const Part& part = owner->parts_[i];
    owner->workers_->report(part.task, status);
    if (!status.ok()) {
      for (const int64_t over : over_steps[i]) owner->keeper_->tell_later(part.task, over);
    }
    Value nothing;
    nothing.set_dead();
    // An error means that the run was aborted: then nobody asks what it waits for.
    (void)step->rendezvous->send(wait_key(i), std::move(nothing));
    if (step->trace) add_trace(response);
    if (status.ok() && response.fetches.size() != part.fetches.size()) {
      status = internal("task ", part.task, " answered ", response.fetches.size(),
                        " fetches, expected ", part.fetches.size());
    }
    if (status.ok() && response.sent.size() != handed[i].size()) {
      status = internal("task ", part.task, " answered ", response.sent.size(),
                        " tensors, expected ", handed[i].size());
    }
    if (status.ok()) {
      if (part.sends) part.sends->prompt.store(response.prompt, std::memory_order_relaxed);
      hand_over(i, response.sent);
      for (size_t f = 0; f < part.fetches.size(); ++f) {
        step->fetches[static_cast<size_t>(part.fetches[f])] = std::move(response.fetches[f]);
      }
    }
    {
      MutexLock lock(mu);
      answered[i] = true;
    }
    if (!status.ok()) fail(status, response.derived);
    step->end_part();
  }

  // Gives what part `i` sent to the session's own task.
  void hand_over(size_t i, std::vector<Value>& sent) {
    if (sent.empty()) return;
    Result<Ref<WorkerInterface>> own = owner->workers_->find(owner->own_task_);
    if (!own.ok()) return fail(own.status(), /*status_derived=*/false);
    for (size_t k = 0; k < sent.size(); ++k) {
      Sends::Send& send = *handed[i][k];
      const bool large = !sent[k].dead() && sent[k].tensor.bytes() > kHandedBytes;
      send.large.store(large, std::memory_order_relaxed);
      (*own)->give_tensor(step_id, send.key, std::move(sent[k]),
                          [calls = Ref<Calls>(this)](const Status& status) {
                            // Of a step that has failed already, it says no more than that.
                            if (!status.ok()) calls->fail(status, /*status_derived=*/true);
                          });
    }
  }

  // Times of another process's clock become times of ours.
  void add_trace(RunGraphResponse& response) {
    int64_t shift = response.wall_offset_ns - step->trace->wall_offset_ns();
    for (TraceEvent& event : response.events) {
      if (event.scheduled_ns != 0) event.scheduled_ns += shift;
      event.start_ns += shift;
      event.end_ns += shift;
      step->trace->record(std::move(event));
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
    token->cancel(status);
  }

  // All parts have ended; the step's error is the one that tells most.
  void end() {
    if (ticket != 0) step->cancel->remove(ticket);
    bool failed;
    {
      MutexLock lock(mu);
      failed = !error.ok();
      if (failed) step->fail_at_end(error);
    }
    for (const Part& part : owner->parts_) {
      // A step that went well leaves next to nothing: its end is told with what is said next. One
      // that failed may have left tensors that nobody took.
      if (!failed && part.worker->needs_lease()) {
        owner->keeper_->tell_later(part.task, step_id);
        continue;
      }
      part.worker->cleanup_step(
          step_id, [keeper = owner->keeper_, task = part.task, id = step_id](const Status& status) {
            if (status.code() == Code::kUnavailable) keeper->tell_later(task, id);
          });
    }
    owner->watch_->end(wait);
    // Before the caller hears of it: who then drops the executable knows it deregistered.
    Ref<const RemoteExecutable> dropped;
    MutexLock lock(mu);
    dropped = std::move(owner);
  }
};

// What the tasks said.
struct RemoteExecutable::Waits : RefCounted {
  Mutex mu;
  std::map<std::string, WorkerActivity> by_task MR_GUARDED_BY(mu);
};

void RemoteExecutable::Calls::tell(int64_t waited_ms) {
  Ref<const RemoteExecutable> executable;
  std::vector<const Part*> open;
  {
    MutexLock lock(mu);
    executable = owner;
    for (size_t i = 0; executable && i < answered.size(); ++i) {
      if (!answered[i]) open.push_back(&executable->parts_[i]);
    }
  }
  if (open.empty()) return;
  const Ref<Waits> waits = make_ref<Waits>();
  const Ref<CallGroup> group = make_ref<CallGroup>("get_activity");
  for (const Part* part : open) group->expect(part->task);
  for (const Part* part : open) {
    part->worker->get_activity(step_id,
                               [waits, group, task = part->task](Result<WorkerActivity> activity) {
                                 if (activity.ok()) {
                                   MutexLock lock(waits->mu);
                                   waits->by_task[task] = *std::move(activity);
                                 }
                                 group->answer(task, ok_status());
                               });
  }
  (void)group->wait(lost_after_ms());  // who does not answer is named for that
  std::string lines;
  MutexLock lock(waits->mu);
  for (const Part* part : open) {
    const auto it = waits->by_task.find(part->task);
    if (it == waits->by_task.end()) {
      lines += str_cat("\n  ", part->task, " does not say what it does");
    } else if (it->second.steps.empty()) {
      lines += str_cat("\n  ", part->task, " has not begun the step");
    } else if (it->second.steps[0].waits_for.empty()) {
      lines += str_cat("\n  ", part->task, " computes");
    } else {
      for (const std::string& text : it->second.steps[0].waits_for) {
        lines += str_cat("\n  ", executable->describe_wait(part->task, text));
      }
    }
  }
  MR_NOTICE("a run of session ", executable->keeper_->session(), " has not ended after ",
            waited_ms / 1000, " s (step ", step_id, "):", lines);
}

std::string RemoteExecutable::describe_wait(const std::string& task,
                                            const std::string& wait) const {
  std::string text = str_cat(task, " waits for ", wait);
  std::string node;
  const Result<RendezvousKey> key = RendezvousKey::parse(wait.substr(0, wait.find(" from ")));
  if (key.ok()) {
    // "edge_<number>_<node>", see partition().
    const size_t number = key->tensor_name.find('_');
    const size_t name =
        number == std::string::npos ? number : key->tensor_name.find('_', number + 1);
    if (name != std::string::npos) node = key->tensor_name.substr(name + 1);
    // What a peer asked it for: the peer's own waits name it too.
    if (!key->recv_device.starts_with(task)) text = str_cat(task, " has not sent ", wait);
  } else if (const size_t quote = wait.find('"'); quote != std::string::npos) {
    node = wait.substr(quote + 1, wait.rfind('"') - quote - 1);
  }
  const auto origin = origins_.find(node);
  if (origin != origins_.end()) text += str_cat(", ", describe_origin(origin->second));
  return text;
}

void RemoteExecutable::run_async(Ref<Step> step, Step::Done done) const {
  Ref<Calls> calls = make_ref<Calls>(this, step);
  calls->wait = watch_->begin(calls);
  // The last answer may come at once, and with it the end of this executable.
  const size_t count = parts_.size();
  // One part more than there are tasks, so that nothing ends before all have been called.
  step->begin(static_cast<int>(count) + 1, [calls, done = std::move(done)](Step& ended) mutable {
    calls->end();
    done(ended);
  });
  calls->ticket = step->cancel->on_cancel([calls, token = step->cancel.get()] {
    calls->fail(token->status(), /*status_derived=*/false);
  });
  if (calls->ticket != 0) {
    for (size_t i = 0; i < count; ++i) calls->start(i);
  } else {
    calls->fail(step->cancel->status(), /*status_derived=*/false);
    for (size_t i = 0; i < count; ++i) step->end_part();
  }
  step->end_part();
}

Result<Ref<PartialRun>> RemoteExecutable::start_partial(Ref<Step>, Step::Done) const {
  return unimplemented(
      "partial_run on a cluster: partial runs work in sessions of one process only");
}

Status RemoteExecutable::run_straight(Step&) const {
  return internal("a step on other tasks cannot run on the caller's thread");
}

int64_t RemoteExecutable::bytes() const {
  // A plan is some times larger than its message, and it is the workers' memory that counts.
  constexpr int64_t kPlanPerMessage = 8;
  constexpr int64_t kPlanAtLeast = int64_t{16} << 10;
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes += kPlanAtLeast + part.graph_bytes * kPlanPerMessage;
  return bytes;
}

std::string RemoteExecutable::to_string() const {
  std::string out;
  for (const Part& part : parts_) {
    out += str_cat(part.task, " as graph ", part.handle, "\n", part.text);
  }
  return out;
}

}  // namespace millrace
