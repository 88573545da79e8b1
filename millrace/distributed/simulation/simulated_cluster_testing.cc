#include "millrace/distributed/simulation/simulated_cluster_testing.h"

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/direct_worker.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

constexpr int64_t kMilli = 1'000'000;

}  // namespace

const std::vector<std::string>& SimulatedCluster::tasks() {
  static const auto* names = new std::vector<std::string>{
      task_name("ps", 0), task_name("ps", 1), task_name("worker", 0), task_name("worker", 1)};
  return *names;
}

SimulatedCluster::SimulatedCluster(uint64_t seed, const Chances& chances, const Bugs& bugs)
    : time_(make_ref<SimulatedTime>(seed)),
      network_(make_ref<SimulatedNetwork>(
          time_, SimulatedNetwork::Options{.lost_after_ns = lost_after_ms() * kMilli,
                                           .bear_silence = bugs.missing_deadline,
                                           .lose_aborts = bugs.lost_abort})),
      chances_(chances),
      bugs_(bugs) {
  network_->on_message = [this](const std::string& from, const std::string& to) {
    maybe_fail(from, to);
  };
}

SimulatedCluster::~SimulatedCluster() { end_all(); }

void SimulatedCluster::end_all() {
  network_->on_message = nullptr;
  on_start = nullptr;
  while (!processes_.empty()) {
    const Ref<Process> process = processes_.begin()->second;
    processes_.erase(processes_.begin());
    network_->stop(process->task, /*tell_others=*/true);
    end(process);
  }
  network_->close();
  time_->clear();
}

void SimulatedCluster::start_all() {
  for (const std::string& task : tasks()) start(task);
}

uint64_t SimulatedCluster::life(const std::string& task) const {
  const auto it = processes_.find(task);
  return it == processes_.end() || !network_->running(task) ? 0 : it->second->life;
}

void SimulatedCluster::start(const std::string& task) {
  const Ref<Process> process = make_ref<Process>();
  process->task = task;
  process->first = starts_[task]++ == 0;
  process->timer = make_ref<ProcessTimer>(time_);
  process->device = make_cpu_device(*DeviceName::parse(task), nullptr, time_->random() | 1).value();
  // The service needs the worker, its peers the number of the process.
  const Ref<WorkerCache> peers = make_ref<WorkerCache>();
  process->worker =
      Worker::create(task, {process->device}, peers, process->timer, &time_->pool()).value();
  process->life = network_->start(task, make_worker_service(process->worker));
  process->ways = make_ref<WorkerCache>();
  for (const std::string& other : tasks()) {
    if (other == task) continue;
    MR_CHECK_OK(
        peers->add(other, make_remote_worker(network_->connect(task, process->life, other))));
    MR_CHECK_OK(process->ways->add(other, peers->find(other).value()));
  }
  MR_CHECK_OK(process->ways->add(
      task, make_direct_worker([worker = process->worker] { return Result<Ref<Worker>>(worker); },
                               &time_->pool())));
  processes_[task] = process;
  if (on_start) on_start(process);
}

void SimulatedCluster::crash(const std::string& task) {
  if (!network_->running(task)) return;
  ++crashes_;
  // From this word on it says nothing; its memory goes when nothing of it is on the stack.
  network_->doom(task);
  time_->schedule(0, [this, task] { kill(task); });
}

void SimulatedCluster::kill(const std::string& task) {
  const Ref<Process> process = processes_.at(task);
  processes_.erase(task);
  network_->stop(task, /*tell_others=*/time_->chance(0.8));
  end(process);
  time_->schedule(time_->between(10, 3000) * kMilli, [this, task] { start(task); });
}

void SimulatedCluster::end(const Ref<Process>& process) {
  process->timer->stop();
  if (on_end) on_end(process);
  process->worker->shut_down(unavailable("task ", process->task, " has ended"));
  process->device->resources().clear();
}

void SimulatedCluster::calm() {
  chances_ = {};
  network_->heal_all();
}

void SimulatedCluster::maybe_fail(const std::string& from, const std::string& to) {
  if (time_->chance(chances_.reset)) network_->reset(from, to);
  if (time_->chance(chances_.silence)) network_->silence(from, to);
  if (time_->chance(chances_.cut)) network_->cut(from, to, time_->between(10, 8000) * kMilli);
  if (time_->chance(chances_.crash)) crash(time_->chance(0.5) ? from : to);
}

std::string SimulatedCluster::leftovers() const {
  std::string out;
  for (const auto& [task, process] : processes_) {
    const WorkerActivity activity = process->worker->activity(0);
    for (const WorkerActivity::Step& step : activity.steps) {
      out += str_cat("\n  ", task, " has step ", step.id, ", which waits for ",
                     step.waits_for.empty() ? "nothing" : str_join(step.waits_for, ", "));
    }
    for (const WorkerActivity::Session& session : activity.sessions) {
      out +=
          str_cat("\n  ", task, " has session ", session.name, " with ", session.graphs, " graphs");
    }
    if (process->worker->num_graphs() != 0) {
      out += str_cat("\n  ", task, " has ", process->worker->num_graphs(), " graphs");
    }
  }
  return out;
}

}  // namespace millrace
