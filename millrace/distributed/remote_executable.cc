#include "millrace/distributed/remote_executable.h"

#include <map>

#include "millrace/distributed/part_sends.h"
#include "millrace/distributed/remote_calls.h"
#include "millrace/distributed/remote_partial_run.h"
#include "millrace/kernel/device_name.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

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
  part.text = describe(graph);
  parts_.push_back(std::move(part));
  return ok_status();
}

Status RemoteExecutable::find_traffic(const std::vector<Partition>& parts) {
  MR_TRY_ASSIGN(const Ref<WorkerInterface> own, workers_->find(own_task_));
  if (own->needs_lease()) return ok_status();
  std::map<std::string_view, Traffic*> by_task;
  for (Part& part : parts_) {
    if (part.task == own_task_) continue;
    part.traffic = std::make_unique<Traffic>();
    by_task[part.task] = part.traffic.get();
  }
  MR_TRY_ASSIGN(const std::vector<PartSend> sends, find_part_sends(parts, own_task_));
  for (const PartSend& send : sends) {
    const auto round = static_cast<size_t>(send.round);
    if (send.from != own_task_) {
      Traffic& sender = *by_task.at(send.from);
      sender.only_takes = false;
      if (send.to == own_task_ && round < kRounds) sender.from[round].emplace_back(send.key);
    }
    if (send.to != own_task_) {
      Traffic& receiver = *by_task.at(send.to);
      if (round < kRounds) {
        receiver.to[round].emplace_back(send.key);
      } else {
        receiver.known = false;
      }
    }
  }
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
    calls->start_all();
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
