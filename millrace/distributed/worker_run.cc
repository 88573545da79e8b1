#include <algorithm>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/distributed/run_in_pieces.h"
#include "millrace/distributed/worker.h"

// Worker::run_graph(): from a request to a step that runs, and from its end to the answer.
namespace millrace {
namespace {

// Longer runs had better send each thing as soon as it is there.
constexpr int64_t kPromptNs = 1'000'000;

size_t slots(const std::map<int, DType>& positions) {
  return positions.empty() ? 0 : static_cast<size_t>(positions.rbegin()->first) + 1;
}

// The feeds of a request by position, each of them checked; their size is added to `bytes`.
Result<std::vector<Tensor>> take_feeds(const Boundary& graph, RunGraphRequest& request,
                                       const std::string& task, size_t& bytes) {
  std::vector<Tensor> feeds(slots(graph.feeds));
  for (auto& [position, value] : request.feeds) {
    auto it = graph.feeds.find(position);
    if (it == graph.feeds.end()) {
      return invalid_argument("the graph on ", task, " has no feed ", position);
    }
    Tensor& slot = feeds[static_cast<size_t>(position)];
    if (slot.valid()) return invalid_argument("feed ", position, " was given twice");
    if (value.dtype() != it->second) {
      return invalid_argument("feed ", position, ": expected ", it->second, ", got ",
                              value.dtype());
    }
    bytes += value.bytes();
    slot = std::move(value);
  }
  if (request.in_pieces && !(request.feeds.empty() && request.fetches.empty())) {
    return invalid_argument("a run in pieces on ", task, " is given no feeds or fetches");
  }
  for (const auto& [position, type] : graph.feeds) {
    if (request.in_pieces || feeds[static_cast<size_t>(position)].valid()) continue;
    return invalid_argument("the graph on ", task, " needs feed ", position);
  }
  return feeds;
}

Status check_fetches(const Boundary& graph, const RunGraphRequest& request,
                     const std::string& task) {
  std::vector<bool> asked(slots(graph.fetches));
  for (int position : request.fetches) {
    if (!graph.fetches.contains(position)) {
      return invalid_argument("the graph on ", task, " has no fetch ", position);
    }
    if (asked[static_cast<size_t>(position)]) {
      return invalid_argument("fetch ", position, " was asked for twice");
    }
    asked[static_cast<size_t>(position)] = true;
  }
  return ok_status();
}

}  // namespace

Result<TaskStep> Worker::prepare_run(const Ref<TaskGraph>& graph, RunGraphRequest& request) {
  size_t feed_bytes = 0;
  MR_TRY_ASSIGN(std::vector<Tensor> feeds,
                take_feeds(graph->boundary(), request, task_->name, feed_bytes));
  MR_TRY(check_fetches(graph->boundary(), request, task_->name));
  MR_TRY_ASSIGN(TaskStep found, steps_.find(request.step_id));
  // Where it comes to nothing, the step may be one that find() made.
  Result<Ref<UpdateLog>> log = begin_update(request);
  if (!log.ok()) {
    watch_for_idle();
    return log.status();
  }
  found.began_ns = now_ns();
  const auto make_answer = [&] {
    return make_ref<RunAnswer>(task_->timer, bear_loss_ms_for(lost_after_ms()) * 1'000'000);
  };
  found.answers = {make_answer(), request.early.empty() ? nullptr : make_answer()};
  if (Status begun = steps_.begin_run(request.step_id, graph, found.answers, found.began_ns);
      !begun.ok()) {
    watch_for_idle();
    updates_.end(request.update);
    return begun;
  }
  Step& step = *found.step;
  step.functions = graph->session()->functions();
  step.rendezvous->updates = *std::move(log);
  step.hold_feeds(std::move(feeds));
  step.fetches.resize(slots(graph->boundary().fetches));
  step.max_threads = std::max(1, request.max_threads);
  if (request.trace) step.trace = make_ref<TraceCollector>();
  for (const auto& [key, value] : request.brought) request.given.push_back(key);
  take_brought(found, request);
  if (!request.given.empty()) found.rendezvous->expect(std::move(request.given));
  task_->counters->step_begun();
  if (feed_bytes != 0) task_->counters->feeds_received(feed_bytes);
  return found;
}

void Worker::take_brought(const TaskStep& step, RunGraphRequest& request) {
  for (auto& [key, value] : request.brought) {
    const std::string_view sender = std::string_view(key).substr(0, key.find(';'));
    task_->counters->with_device(sender).received(value.tensor.bytes());
    // An error says that the step was aborted, as the run will say.
    (void)step.rendezvous->give(key, std::move(value));
  }
}

Result<Ref<UpdateLog>> Worker::begin_update(const RunGraphRequest& request) {
  if (request.update == UpdateId()) return Ref<UpdateLog>();
  int64_t before = 0;
  Result<Ref<UpdateLog>> log = updates_.begin(request.update, request.step_id, before);
  if (!log.ok() && before != 0 && before != request.step_id) {
    const TaskStep earlier = steps_.find_known(before);
    if (earlier.step) earlier.end(aborted("step ", before, " is tried again"));
  }
  return log;
}

void Worker::end_run(const TaskGraph& graph, UpdateId update) {
  if (update != UpdateId()) updates_.end(update);
  graph.session()->end_run();
}

void Worker::run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                       UniqueFunction<void(Status, RunGraphResponse)> done) {
  const int64_t received = request.trace ? monotonic_nanos() : 0;
  end_steps(request.over_steps);
  Result<Ref<TaskGraph>> found = find_graph(request.graph_handle);
  if (!found.ok()) return done(found.status(), RunGraphResponse());
  const Ref<TaskGraph> graph = *std::move(found);
  if (request.continues) {
    return continue_run(graph, std::move(request), std::move(cancel), std::move(done));
  }
  Result<TaskStep> prepared = prepare_run(graph, request);
  const TaskStep run = prepared.ok() ? *prepared : steps_.find_known(request.step_id);
  if (!prepared.ok() && run.graph != graph) return done(prepared.status(), RunGraphResponse());
  const Ref<RunAnswer> answer = run.answers.last;
  (run.answers.early ? run.answers.early : answer)->ask(std::move(cancel), std::move(done));
  if (!prepared.ok()) return;
  // From here on it is the answers that know who asks, and for how long the run is wanted.
  cancel = answer->token();
  done = [answer](Status status, RunGraphResponse response) {
    answer->finish(std::move(status), std::move(response));
  };
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
  // Cancelled when all that will be sent has been.
  const Ref<CancellationToken> sending = make_ref<CancellationToken>();
  if (!request.early.empty()) answer_early(run, request.early, sending);
  auto finish = [self = Ref<Worker>(this), graph, rendezvous = run.rendezvous, sending,
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
    self->end_run(*graph, update);
    response.prompt =
        graph->prompt() && brought == graph->receives() && self->now_ns() - started < kPromptNs;
    response.waits_for_peers_only = graph->prompt();
    auto answered = [done = std::move(done), response = std::move(response)](
                        Status taken, std::vector<Value> values) mutable {
      response.sent = std::move(values);
      done(std::move(taken), std::move(response));
    };
    if (status.ok() && !sends.empty()) {
      self->take_sent(step.id, sends, sending, std::move(answered));
    } else {
      answered(std::move(status), {});
    }
    sending->cancel(
        invalid_argument("the graph on ", self->task_->name, " did not send all that was asked"));
  };
  if (request.in_pieces) {
    run_in_pieces(graph->plans(), graph->boundary(), run.rendezvous, run.step, std::move(finish));
  } else {
    graph->plans().run_async(run.step, std::move(finish));
  }
}

void Worker::answer_early(const TaskStep& run, const std::vector<std::string>& keys,
                          const Ref<CancellationToken>& until) {
  // Who gives up this call gives up the run.
  const Ref<CancellationToken> asked = run.answers.early->token();
  const uint64_t ticket = asked->on_cancel([answer = run.answers.last, token = asked.get()] {
    answer->token()->cancel(token->status());
  });
  if (ticket == 0) run.answers.last->token()->cancel(asked->status());
  take_sent(run.step->id, keys, until,
            [self = Ref<Worker>(this), answers = run.answers, began_ns = run.began_ns, asked,
             ticket](const Status& taken, std::vector<Value> values) {
              if (ticket != 0) asked->remove(ticket);
              if (taken.ok()) {
                RunGraphResponse response;
                response.sent = std::move(values);
                response.goes_on = true;
                response.prompt = self->now_ns() - began_ns < kPromptNs;
                return answers.early->finish(ok_status(), std::move(response));
              }
              // The run has ended, or is about to, and says more.
              answers.last->ask(
                  nullptr, [early = answers.early, taken](Status ended, RunGraphResponse response) {
                    if (ended.ok()) ended = taken;
                    early->finish(std::move(ended), std::move(response));
                  });
            });
}

void Worker::continue_run(const Ref<TaskGraph>& graph, RunGraphRequest request,
                          Ref<CancellationToken> cancel,
                          UniqueFunction<void(Status, RunGraphResponse)> done) {
  const TaskStep known = steps_.find_known(request.step_id);
  if (known.graph != graph || !known.answers.early) {
    return done(aborted("step ", request.step_id, " has no run on ", task_->name, " that goes on"),
                RunGraphResponse());
  }
  take_brought(known, request);
  known.answers.last->ask(std::move(cancel), std::move(done));
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

void Worker::take_sent(int64_t step_id, const std::vector<std::string>& keys,
                       const Ref<CancellationToken>& until, ValuesDone done) {
  const Ref<Gathered> gathered = make_ref<Gathered>();
  gathered->done = std::move(done);
  {
    MutexLock lock(gathered->mu);
    gathered->values.resize(keys.size());
    gathered->missing = keys.size();
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    recv_tensor({step_id, keys[i]}, until, [gathered, i](const Status& status, Value value) {
      gathered->take(i, status, std::move(value));
    });
  }
}

}  // namespace millrace
