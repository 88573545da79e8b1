#include "millrace/distributed/remote_calls.h"

#include <algorithm>
#include <map>

#include "millrace/base/clock.h"
#include "millrace/base/log.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/repeated_run.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

// What the session's own task makes for others is waited for so long after the step began. Then
// they are called without it, and so in the next runs: it waits for something, or takes its time.
constexpr int64_t kBringNs = 10'000'000;
constexpr int kRunsWithout = 64;
// Larger tensors had better come while others are still computed.
constexpr size_t kHandedBytes = size_t{256} << 10;
// What takes less may be done by the thread that runs the step, before it waits for its end.
constexpr int64_t kQuickNs = 200'000;

bool is_large(const Value& value) { return !value.dead() && value.tensor.bytes() > kHandedBytes; }

// Counts down to 0; false there.
bool count_down(std::atomic<int>& left) {
  if (left.load(std::memory_order_relaxed) <= 0) return false;
  left.fetch_sub(1, std::memory_order_relaxed);
  return true;
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

RemoteExecutable::Calls::Calls(const RemoteExecutable* executable, Ref<Step> run, bool partial)
    : owner(executable),
      step(std::move(run)),
      step_id(executable->step_ids_->next()),
      in_pieces(partial),
      loads_(executable->parts_.size()) {
  {
    MutexLock lock(mu_);
    answered_.resize(loads_.size());
  }
  if (in_pieces) return;
  const bool without = count_down(owner->without_);
  for (size_t i = 0; i < loads_.size(); ++i) {
    if (owner->parts_[i].traffic) choose(*owner->parts_[i].traffic, without, loads_[i]);
  }
}

void RemoteExecutable::Calls::choose(Traffic& traffic, bool without, Load& load) {
  const auto add = [](std::deque<Carried>& from, bool also_large, std::vector<Carried*>& to) {
    for (Carried& carried : from) {
      if (also_large || !carried.large.load(std::memory_order_relaxed)) to.push_back(&carried);
    }
  };
  if (!without) {
    add(traffic.to[0], /*also_large=*/true, load.first.what);
    if (traffic.only_takes && traffic.known)
      add(traffic.to[1], /*also_large=*/false, load.first.what);
    load.first.values.resize(load.first.what.size());
    load.first.missing = load.first.what.size();
  }
  if (traffic.prompt.load(std::memory_order_relaxed)) {
    for (std::deque<Carried>& round : traffic.from) add(round, /*also_large=*/false, load.last);
    return;
  }
  if (without || !traffic.known || traffic.only_takes || traffic.to[1].empty() ||
      !traffic.waits_for_peers_only.load(std::memory_order_relaxed) ||
      count_down(traffic.not_early)) {
    return;
  }
  add(traffic.from[0], /*also_large=*/false, load.early);
  if (load.early.empty()) return;
  load.twice = true;
  add(traffic.from[1], /*also_large=*/false, load.last);
  add(traffic.to[1], /*also_large=*/false, load.second.what);
  load.second.values.resize(load.second.what.size());
}

std::string RemoteExecutable::Calls::wait_key(size_t i) const {
  return str_cat("run_graph of step ", step_id, " on ", owner->parts_[i].task);
}

// Known since the executable was made.
Ref<WorkerInterface> RemoteExecutable::Calls::own_worker() const {
  return owner->workers_->find(owner->own_task_).value();
}

void RemoteExecutable::Calls::start_all() {
  const Ref<const RemoteExecutable> executable = owner;  // the step may end meanwhile
  const size_t count = loads_.size();
  size_t own = count;
  std::vector<size_t> later;
  for (size_t i = 0; i < count; ++i) {
    if (executable->parts_[i].task == executable->own_task_) {
      own = i;
    } else if (!loads_[i].first.what.empty()) {
      later.push_back(i);
    } else {
      start(i);
    }
  }
  if (!later.empty()) {
    {
      MutexLock lock(mu_);
      look_later(kBringNs);
    }
    const Ref<WorkerInterface> worker = own_worker();
    for (const size_t i : later) bring_and_start(i, worker);
  }
  // The last, since it may be run here.
  if (own < count) start_own(own);
}

void RemoteExecutable::Calls::bring_and_start(size_t i, const Ref<WorkerInterface>& own) {
  const std::vector<Carried*> what = loads_[i].first.what;
  for (size_t k = 0; k < what.size(); ++k) {
    own->recv_tensor({step_id, what[k]->key}, bring_token_,
                     [calls = Ref<Calls>(this), i, k](const Status& status, Value value) {
                       {
                         MutexLock lock(calls->mu_);
                         Bringing& first = calls->loads_[i].first;
                         if (status.ok()) first.values[k] = std::move(value);
                         if (--first.missing > 0) return;
                       }
                       if (!calls->token->cancelled()) return calls->start(i);
                       // The run has failed by now.
                       {
                         MutexLock lock(calls->mu_);
                         calls->answered_[i] = true;
                       }
                       calls->step->end_part();
                     });
  }
}

RunGraphRequest RemoteExecutable::Calls::first_request(size_t i) {
  const Part& part = owner->parts_[i];
  Load& load = loads_[i];
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
  for (const Carried* send : load.last) request.sends.push_back(send->key);
  for (const Carried* send : load.early) request.early.push_back(send->key);
  for (const Carried* later : load.second.what) request.given.push_back(later->key);
  {
    MutexLock lock(mu_);
    for (size_t k = 0; k < load.first.values.size(); ++k) {
      Value& value = load.first.values[k];
      if (!value.empty()) request.brought.emplace_back(load.first.what[k]->key, std::move(value));
    }
  }
  if (part.task == owner->own_task_) {
    for (const Load& other : loads_) {
      for (const Carried* send : other.early) request.given.push_back(send->key);
      for (const Carried* send : other.last) request.given.push_back(send->key);
    }
  }
  request.over_steps = load.over_steps = owner->keeper_->take_over_steps(part.task);
  request.update = step->rendezvous->update;
  return request;
}

void RemoteExecutable::Calls::start(size_t i) {
  const Part& part = owner->parts_[i];
  step->rendezvous->recv(wait_key(i), nullptr, [](const Status&, const Value&) {});
  if (step->trace) {
    if (part.worker->needs_lease()) owner->workers_->clocks()->ask(part.task, part.worker);
    loads_[i].sent_ns = monotonic_nanos();
  }
  run_graph_surely(part.worker, owner->timer_, first_request(i), token,
                   [calls = Ref<Calls>(this), i](Status status, RunGraphResponse response) {
                     if (calls->loads_[i].twice) {
                       calls->answered_early(i, std::move(status), std::move(response));
                     } else {
                       calls->part_ended(i, std::move(status), std::move(response));
                     }
                   });
}

void RemoteExecutable::Calls::start_own(size_t i) {
  const Ref<const RemoteExecutable> executable = owner;  // the step may end meanwhile
  const Part& part = executable->parts_[i];
  step->rendezvous->recv(wait_key(i), nullptr, [](const Status&, const Value&) {});
  RunGraphRequest request = first_request(i);
  // A caller with a deadline wants to hear of it also while kernels compute.
  request.on_caller = !in_pieces && step->deadline.is_none() &&
                      executable->own_waits_for_peers_only_.load(std::memory_order_relaxed) &&
                      !count_down(executable->own_slow_);
  const bool on_caller = request.on_caller;
  const int64_t began_ns = on_caller ? monotonic_nanos() : 0;
  if (step->trace) loads_[i].sent_ns = monotonic_nanos();
  run_graph_surely(part.worker, executable->timer_, std::move(request), token,
                   [calls = Ref<Calls>(this), i](Status status, RunGraphResponse response) {
                     calls->owner->own_waits_for_peers_only_.store(response.waits_for_peers_only,
                                                                   std::memory_order_relaxed);
                     calls->part_ended(i, std::move(status), std::move(response));
                   });
  if (on_caller && monotonic_nanos() - began_ns > kQuickNs) {
    executable->own_slow_.store(kRunsWithout, std::memory_order_relaxed);
  }
}

void RemoteExecutable::Calls::answered_early(size_t i, Status status, RunGraphResponse response) {
  if (!status.ok()) return part_ended(i, std::move(status), std::move(response));
  const Part& part = owner->parts_[i];
  owner->workers_->report(part.task, status);
  if (!response.prompt) part.traffic->not_early.store(kRunsWithout, std::memory_order_relaxed);
  if (!response.goes_on) {
    status = internal("task ", part.task, " answered at its end what it was to answer early");
    return part_ended(i, std::move(status), std::move(response));
  }
  {
    MutexLock lock(mu_);
    loads_[i].between_since_ns = owner->timer_->now_ns();
  }
  status = hand_over(i, loads_[i].early, response.sent);
  if (!status.ok()) fail(status, /*status_derived=*/false);
  bring_second(i);
}

void RemoteExecutable::Calls::bring_second(size_t i) {
  Bringing& second = loads_[i].second;
  {
    MutexLock lock(mu_);
    second.missing = second.what.size() + 1;  // until all have been asked for
  }
  const Ref<WorkerInterface> own = own_worker();
  for (size_t k = 0; k < second.what.size(); ++k) {
    own->recv_tensor({step_id, second.what[k]->key}, token,
                     [calls = Ref<Calls>(this), i, k](const Status& status, Value value) {
                       calls->second_came(i, k, status, std::move(value));
                     });
  }
  {
    MutexLock lock(mu_);
    if (second.over) return;
    if (--second.missing > 0) {
      if (looking_ == 0) look_later(kBringNs);
      return;
    }
    second.over = true;
  }
  call_again(i);
}

void RemoteExecutable::Calls::second_came(size_t i, size_t k, const Status& status, Value value) {
  Bringing& second = loads_[i].second;
  // An error says that the run has failed; then it is called all the same, to hear of its end.
  if (!status.ok()) fail(status, /*status_derived=*/true);
  if (status.ok()) second.what[k]->large.store(is_large(value), std::memory_order_relaxed);
  bool over;
  Ref<const RemoteExecutable> executable;
  {
    MutexLock lock(mu_);
    over = second.over;
    executable = owner;
    if (!over) {
      if (status.ok()) std::swap(second.values[k], value);
      if (--second.missing > 0) return;
      second.over = true;
    }
  }
  if (!over) return call_again(i);
  // Too late for the call. The task waits for it, unless the run has ended.
  if (!status.ok() || !executable) return;
  give_tensor_surely(executable->parts_[i].worker, executable->timer_, step_id, second.what[k]->key,
                     value, token, [calls = Ref<Calls>(this)](const Status& given) {
                       if (!given.ok()) calls->fail(given, /*status_derived=*/true);
                     });
}

void RemoteExecutable::Calls::call_again(size_t i) {
  const Part& part = owner->parts_[i];
  RunGraphRequest request;
  request.graph_handle = part.handle;
  request.step_id = step_id;
  request.continues = true;
  {
    MutexLock lock(mu_);
    Bringing& second = loads_[i].second;
    for (size_t k = 0; k < second.values.size(); ++k) {
      Value& value = second.values[k];
      if (!value.empty()) request.brought.emplace_back(second.what[k]->key, std::move(value));
    }
  }
  run_graph_surely(part.worker, owner->timer_, std::move(request), token,
                   [calls = Ref<Calls>(this), i](Status status, RunGraphResponse response) {
                     calls->part_ended(i, std::move(status), std::move(response));
                   });
}

void RemoteExecutable::Calls::look_later(int64_t delay_ns) {
  looking_ = owner->timer_->schedule(
      delay_ns, [calls = Ref<Calls>(this)] { calls->stop_waiting_for_late(); });
}

void RemoteExecutable::Calls::stop_waiting_for_late() {
  std::vector<size_t> again;
  Ref<const RemoteExecutable> executable;
  {
    MutexLock lock(mu_);
    executable = owner;
    looking_ = 0;
    if (!executable) return;
    const int64_t now = executable->timer_->now_ns();
    int64_t next_ns = INT64_MAX;
    for (size_t i = 0; i < loads_.size(); ++i) {
      Load& load = loads_[i];
      if (load.first.missing > 0) executable->without_.store(kRunsWithout);
      if (load.between_since_ns < 0 || load.second.over) continue;
      const int64_t left_ns = load.between_since_ns + kBringNs - now;
      if (left_ns > 0) {
        next_ns = std::min(next_ns, left_ns);
        continue;
      }
      load.second.over = true;
      again.push_back(i);
    }
    if (next_ns != INT64_MAX) look_later(next_ns);
  }
  bring_token_->cancel(cancelled("it was not there in time"));
  for (const size_t i : again) {
    executable->parts_[i].traffic->not_early.store(kRunsWithout, std::memory_order_relaxed);
    call_again(i);
  }
}

void RemoteExecutable::Calls::part_ended(size_t i, Status status, RunGraphResponse response) {
  const Part& part = owner->parts_[i];
  owner->workers_->report(part.task, status);
  if (!status.ok()) {
    for (const int64_t over : loads_[i].over_steps) owner->keeper_->tell_later(part.task, over);
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
  if (status.ok()) status = hand_over(i, loads_[i].last, response.sent);
  if (status.ok()) {
    if (part.traffic && !in_pieces) {
      part.traffic->prompt.store(response.prompt, std::memory_order_relaxed);
      part.traffic->waits_for_peers_only.store(response.waits_for_peers_only,
                                               std::memory_order_relaxed);
    }
    for (size_t f = 0; f < wanted; ++f) {
      step->fetches[static_cast<size_t>(part.fetches[f])] = std::move(response.fetches[f]);
    }
  }
  {
    MutexLock lock(mu_);
    answered_[i] = true;
  }
  if (!status.ok()) fail(status, response.derived);
  step->end_part();
}

Status RemoteExecutable::Calls::hand_over(size_t i, const std::vector<Carried*>& what,
                                          std::vector<Value>& sent) {
  if (sent.size() != what.size()) {
    return internal("task ", owner->parts_[i].task, " answered ", sent.size(),
                    " tensors, expected ", what.size());
  }
  if (sent.empty()) return ok_status();
  const Ref<WorkerInterface> own = own_worker();
  for (size_t k = 0; k < sent.size(); ++k) {
    what[k]->large.store(is_large(sent[k]), std::memory_order_relaxed);
    own->give_tensor(step_id, what[k]->key, std::move(sent[k]),
                     [calls = Ref<Calls>(this)](const Status& status) {
                       // Of a step that has failed already, it says no more than that.
                       if (!status.ok()) calls->fail(status, /*status_derived=*/true);
                     });
  }
  return ok_status();
}

void RemoteExecutable::Calls::add_trace(size_t i, RunGraphResponse& response) {
  const Part& part = owner->parts_[i];
  if (part.worker->needs_lease()) {
    const int64_t returned_ns = monotonic_nanos(), sent_ns = loads_[i].sent_ns;
    const int64_t received_ns = response.received_ns, answered_ns = response.answered_ns;
    ClockOffsets& clocks = *owner->workers_->clocks();
    if (!clocks.add(part.task, {sent_ns, received_ns, answered_ns, returned_ns})) return;
    const ClockOffset offset = *clocks.estimate(part.task, returned_ns);
    for (TraceEvent& event : response.events) {
      for (int64_t* ns : {&event.scheduled_ns, &event.start_ns, &event.end_ns}) {
        if (ns == &event.scheduled_ns && *ns == 0) continue;
        *ns = std::clamp(*ns, received_ns, answered_ns) - offset.offset_ns;
      }
    }
    step->trace->record(describe_call(part.task, sent_ns, returned_ns, offset));
  }
  for (TraceEvent& event : response.events) step->trace->record(std::move(event));
}

void RemoteExecutable::Calls::fail(const Status& status, bool status_derived) {
  // An abort may bring the last answer at once, and end() lets go of the executable.
  Ref<const RemoteExecutable> executable;
  std::vector<size_t> others;
  {
    MutexLock lock(mu_);
    executable = owner;
    bool first = error_.ok();
    if (first || (derived_ && !status_derived)) {
      error_ = status;
      derived_ = status_derived;
    }
    if (!first) return;
    for (size_t i = 0; i < answered_.size(); ++i) {
      if (!answered_[i]) others.push_back(i);
    }
  }
  // The abort reaches a worker whose run_graph has not come yet; the token ends calls to a worker
  // that does not answer.
  for (size_t i : others) {
    executable->parts_[i].worker->abort_step(step_id, status, [](const Status&) {});
  }
  token->cancel(status);
}

void RemoteExecutable::Calls::end() {
  if (ticket != 0) step->cancel->remove(ticket);
  Status outcome;
  uint64_t looking;
  {
    MutexLock lock(mu_);
    outcome = error_;
    looking = looking_;
  }
  if (looking != 0) owner->timer_->remove(looking);
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
  MutexLock lock(mu_);
  dropped = std::move(owner);
}

namespace {

// What the tasks said.
struct Waits : RefCounted {
  Mutex mu;
  std::map<std::string, WorkerActivity> by_task MR_GUARDED_BY(mu);
};

}  // namespace

void RemoteExecutable::Calls::tell(int64_t waited_ms) {
  Ref<const RemoteExecutable> executable;
  std::vector<const Part*> open;
  {
    MutexLock lock(mu_);
    executable = owner;
    for (size_t i = 0; executable && i < answered_.size(); ++i) {
      if (!answered_[i]) open.push_back(&executable->parts_[i]);
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

}  // namespace millrace
