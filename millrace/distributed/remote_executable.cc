#include "millrace/distributed/remote_executable.h"

#include <algorithm>
#include <map>

#include "millrace/base/clock.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/remote_partial_run.h"
#include "millrace/distributed/repeated_run.h"
#include "millrace/kernel/device_name.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

// What the session's own task makes for others is waited for so long before they are called. Then
// they ask for it themselves, in this run and the next ones: it waits for something.
constexpr int64_t kBringNs = 10'000'000;
constexpr int kRunsWithout = 64;
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

// For the trace: a call to a task, and what is known of its clock.
TraceEvent describe_call(const std::string& task, int64_t sent_ns, int64_t returned_ns,
                         const ClockOffset& clock) {
  TraceEvent event;
  event.kind = TraceEvent::Kind::kCall;
  event.op = "run_graph";
  event.device = task;
  event.node = str_cat("run_graph on ", task, ", whose clock is ahead by ", clock.offset_ns,
                       " ns, +/- ", clock.uncertainty_ns, " ns");
  event.start_ns = sent_ns;
  event.end_ns = returned_ns;
  return event;
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
  MR_TRY(find_sends(part, graph));
  part.text = describe(graph);
  parts_.push_back(std::move(part));
  return ok_status();
}

Status RemoteExecutable::find_sends(Part& part, const Subgraph& graph) {
  MR_TRY_ASSIGN(const Ref<WorkerInterface> own, workers_->find(own_task_));
  if (own->needs_lease()) return ok_status();
  MR_TRY_ASSIGN(std::vector<PartSend> sends, find_part_sends(graph));
  if (part.task == own_task_) {
    early_ = std::move(sends);
    std::erase_if(early_, [](const PartSend& send) { return !send.early; });
    return ok_status();
  }
  auto out = std::make_unique<Sends>();
  for (PartSend& send : sends) {
    // A graph that waits for nothing has no loops: this is the key of its only iteration.
    if (send.to == own_task_) out->all.emplace_back().key = std::move(send.key);
  }
  if (!out->all.empty()) part.sends = std::move(out);
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

Ref<CallGroup> RemoteExecutable::register_parts(std::vector<RegisterGraphRequest> requests) {
  MR_CHECK(requests.size() == parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].graph_bytes = static_cast<int64_t>(requests[i].graph_def.size());
    for (const PartSend& send : early_) {
      if (send.to == parts_[i].task) parts_[i].brought.push_back(send.key);
    }
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
  const bool in_pieces;   // feeds and fetches go by calls of their own
  const Ref<CancellationToken> token = make_ref<CancellationToken>();
  uint64_t wait = 0;    // of the watch
  uint64_t ticket = 0;  // of step->cancel

  Mutex mu;
  Status error MR_GUARDED_BY(mu);
  bool derived MR_GUARDED_BY(mu) = false;
  std::vector<bool> answered MR_GUARDED_BY(mu);
  // By part: what its task was told to clean up with this call.
  std::vector<std::vector<int64_t>> over_steps;
  // By part: what comes with the call, from the session's own task; empty where it did not come.
  struct Bringing {
    std::vector<Value> values;
    size_t missing = 0;
  };
  std::vector<Bringing> bringing MR_GUARDED_BY(mu);
  const Ref<CancellationToken> bring_token = CancellationToken::make_child(token);
  uint64_t bring_ticket = 0;  // of the timer
  // By part: what comes with its answer, for the session's own task.
  std::vector<std::vector<Sends::Send*>> handed;
  std::vector<int64_t> sent_ns;  // by part: when its task was called; empty without a trace

  Calls(const RemoteExecutable* executable, Ref<Step> run, bool partial)
      : owner(executable),
        step(std::move(run)),
        step_id(executable->step_ids_->next()),
        in_pieces(partial),
        over_steps(executable->parts_.size()),
        handed(executable->parts_.size()),
        sent_ns(step->trace ? executable->parts_.size() : 0) {
    for (size_t i = 0; i < handed.size(); ++i) {
      Sends* sends = owner->parts_[i].sends.get();
      if (in_pieces || !sends || !sends->prompt.load(std::memory_order_relaxed)) continue;
      for (Sends::Send& send : sends->all) {
        if (!send.large.load(std::memory_order_relaxed)) handed[i].push_back(&send);
      }
    }
    MutexLock lock(mu);
    answered.resize(owner->parts_.size());
    bringing.resize(owner->parts_.size());
    if (in_pieces || owner->early_.empty()) return;
    if (owner->without_.load(std::memory_order_relaxed) > 0) {
      owner->without_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
    for (size_t i = 0; i < bringing.size(); ++i) {
      bringing[i].missing = owner->parts_[i].brought.size();
      bringing[i].values.resize(bringing[i].missing);
    }
  }

  bool brings(size_t i) {
    MutexLock lock(mu);
    return !bringing[i].values.empty();
  }

  // Takes what part `i` needs from the session's own task, and calls the part then.
  void bring_and_start(size_t i, const Ref<WorkerInterface>& own) {
    const Brought& keys = owner->parts_[i].brought;
    const size_t count = keys.size();
    for (size_t k = 0; k < count; ++k) {
      own->recv_tensor({step_id, keys[k]}, bring_token,
                       [calls = Ref<Calls>(this), i, k](const Status& status, Value value) {
                         {
                           MutexLock lock(calls->mu);
                           Bringing& part = calls->bringing[i];
                           if (status.ok()) part.values[k] = std::move(value);
                           if (--part.missing > 0) return;
                         }
                         calls->start_brought(i);
                       });
    }
  }

  void start_brought(size_t i) {
    if (!token->cancelled()) return start(i);
    // The run has failed by now.
    {
      MutexLock lock(mu);
      answered[i] = true;
    }
    step->end_part();
  }

  void start_all(size_t count) {
    std::vector<size_t> later;
    for (size_t i = 0; i < count; ++i) {
      if (brings(i)) later.push_back(i);
    }
    const Ref<const RemoteExecutable> executable = owner;
    Result<Ref<WorkerInterface>> own = executable->workers_->find(executable->own_task_);
    // What is not there in time is waited for no longer: it may itself wait for who is not called.
    if (!later.empty()) {
      bring_ticket = executable->timer_->schedule(kBringNs, [calls = Ref<Calls>(this), executable] {
        executable->without_.store(kRunsWithout, std::memory_order_relaxed);
        calls->bring_token->cancel(cancelled("it was not there in time"));
      });
    }
    size_t next = 0;
    for (size_t i = 0; i < count; ++i) {
      if (next < later.size() && later[next] == i) {
        ++next;
      } else {
        start(i);
      }
    }
    for (const size_t i : later) bring_and_start(i, *own);
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
    request.in_pieces = in_pieces;
    if (!in_pieces) {
      for (int position : part.feeds) {
        request.feeds.emplace_back(position, step->feeds[static_cast<size_t>(position)]);
      }
      request.fetches = part.fetches;
    }
    request.max_threads = step->max_threads;
    request.trace = static_cast<bool>(step->trace);
    for (const Sends::Send* send : handed[i]) request.sends.push_back(send->key);
    {
      MutexLock lock(mu);
      for (size_t k = 0; k < bringing[i].values.size(); ++k) {
        Value& value = bringing[i].values[k];
        if (!value.empty()) request.brought.emplace_back(part.brought[k], std::move(value));
      }
    }
    if (part.task == owner->own_task_) {
      for (const auto& sends : handed) {
        for (const Sends::Send* send : sends) request.given.push_back(send->key);
      }
    }
    request.over_steps = over_steps[i] = owner->keeper_->take_over_steps(part.task);
    request.update = step->rendezvous->update;
    step->rendezvous->recv(wait_key(i), nullptr, [](const Status&, const Value&) {});
    if (step->trace) {
      if (part.worker->needs_lease()) owner->workers_->clocks()->ask(part.task, part.worker);
      sent_ns[i] = monotonic_nanos();
    }
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
    if (step->trace) add_trace(i, response);
    const size_t wanted = in_pieces ? 0 : part.fetches.size();
    if (status.ok() && response.fetches.size() != wanted) {
      status = internal("task ", part.task, " answered ", response.fetches.size(),
                        " fetches, expected ", wanted);
    }
    if (status.ok() && response.sent.size() != handed[i].size()) {
      status = internal("task ", part.task, " answered ", response.sent.size(),
                        " tensors, expected ", handed[i].size());
    }
    if (status.ok()) {
      if (part.sends && !in_pieces) {
        part.sends->prompt.store(response.prompt, std::memory_order_relaxed);
      }
      hand_over(i, response.sent);
      for (size_t f = 0; f < wanted; ++f) {
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
  void add_trace(size_t i, RunGraphResponse& response) {
    const Part& part = owner->parts_[i];
    if (part.worker->needs_lease()) {
      const int64_t returned_ns = monotonic_nanos();
      const int64_t received_ns = response.received_ns, answered_ns = response.answered_ns;
      ClockOffsets& clocks = *owner->workers_->clocks();
      if (!clocks.add(part.task, {sent_ns[i], received_ns, answered_ns, returned_ns})) return;
      const ClockOffset offset = *clocks.estimate(part.task, returned_ns);
      for (TraceEvent& event : response.events) {
        for (int64_t* ns : {&event.scheduled_ns, &event.start_ns, &event.end_ns}) {
          if (ns == &event.scheduled_ns && *ns == 0) continue;
          *ns = std::clamp(*ns, received_ns, answered_ns) - offset.offset_ns;
        }
      }
      step->trace->record(describe_call(part.task, sent_ns[i], returned_ns, offset));
    }
    for (TraceEvent& event : response.events) step->trace->record(std::move(event));
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
    if (bring_ticket != 0) owner->timer_->remove(bring_ticket);
    Status outcome;
    {
      MutexLock lock(mu);
      outcome = error;
    }
    const bool failed = !outcome.ok();
    // Of a run in pieces its client knows by the token that it is over.
    if (failed && in_pieces) {
      step->fail(outcome);
    } else if (failed) {
      step->fail_at_end(outcome);
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
  Ref<Calls> calls = make_ref<Calls>(this, step, /*partial=*/false);
  calls->wait = watch_->begin(calls);
  start(calls, /*more=*/1, std::move(done));
  step->end_part();
}

Result<Ref<PartialRun>> RemoteExecutable::start_partial(Ref<Step> step, Step::Done done) const {
  Ref<Calls> calls = make_ref<Calls>(this, step, /*partial=*/true);
  std::vector<RemotePartialRun::Place> places;
  for (const Part& part : parts_) {
    places.push_back({part.task, part.worker, part.feeds, part.fetches});
  }
  RemotePartialRun::Context context{
      .step = step,
      .step_id = calls->step_id,
      .cancel = calls->token,
      .timer = timer_,
      .watch = watch_,
      .waiting = calls,
      .fail = [calls](const Status& status) { calls->fail(status, /*status_derived=*/true); }};
  Ref<RemotePartialRun> run = make_ref<RemotePartialRun>(std::move(places), std::move(context));
  start(calls, run->num_fetches() + 1, [run, done = std::move(done)](Step& ended) mutable {
    run->end();
    done(ended);
  });
  run->start();
  step->end_part();
  return Ref<PartialRun>(std::move(run));
}

void RemoteExecutable::start(const Ref<Calls>& calls, int more, Step::Done done) const {
  const Ref<Step> step = calls->step;
  // The caller ends one of the `more` parts when it has done its own: nothing ends before that.
  const size_t count = parts_.size();
  step->begin(static_cast<int>(count) + more, [calls, done = std::move(done)](Step& ended) mutable {
    calls->end();
    done(ended);
  });
  calls->ticket = step->cancel->on_cancel([calls, token = step->cancel.get()] {
    calls->fail(token->status(), /*status_derived=*/false);
  });
  if (calls->ticket != 0) {
    calls->start_all(count);
  } else {
    calls->fail(step->cancel->status(), /*status_derived=*/false);
    for (size_t i = 0; i < count; ++i) step->end_part();
  }
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
