#include "millrace/distributed/task_steps.h"

#include <utility>

namespace millrace {

void TaskStep::end(const Status& reason) const {
  rendezvous->abort_from_outside(reason);
  step->fail(reason);  // the step's error, before kernels that are cancelled have theirs
}

TaskSteps::TaskSteps(Ref<const TaskContext> task, Ref<Collectives> collectives, ThreadPool* pool)
    : task_(std::move(task)), collectives_(std::move(collectives)), pool_(pool) {}

Result<TaskStep> TaskSteps::find(int64_t step_id) {
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

TaskStep TaskSteps::find_known(int64_t step_id) const {
  MutexLock lock(mu_);
  const auto it = steps_.find(step_id);
  return it == steps_.end() ? TaskStep() : it->second;
}

Status TaskSteps::begin_run(int64_t step_id, Ref<TaskGraph> graph, RunAnswers answers,
                            int64_t now_ns) {
  MutexLock lock(mu_);
  const auto known = steps_.find(step_id);
  if (known == steps_.end()) return aborted("step ", step_id, " is over on ", task_->name);
  TaskStep& step = known->second;
  if (step.graph) return aborted("step ", step_id, " has a run on ", task_->name, " already");
  // With the lock: a session that ends now finds the step among those it has.
  MR_TRY(graph->session()->begin_run());
  step.graph = std::move(graph);
  step.answers = std::move(answers);
  step.began_ns = now_ns;
  return ok_status();
}

TaskStep TaskSteps::take_locked(int64_t step_id) {
  TaskStep found;
  if (auto known = steps_.extract(step_id); known) found = std::move(known.mapped());
  if (!over_.insert(step_id).second) return found;
  over_order_.push_back(step_id);
  if (over_order_.size() > kRemembered) {
    over_.erase(over_order_.front());
    over_order_.pop_front();
  }
  return found;
}

std::vector<TaskStep> TaskSteps::take(std::span<const int64_t> step_ids) {
  std::vector<TaskStep> out;
  if (step_ids.empty()) return out;
  MutexLock lock(mu_);
  for (const int64_t id : step_ids) {
    if (TaskStep step = take_locked(id); step.step) out.push_back(std::move(step));
  }
  return out;
}

std::vector<TaskStep> TaskSteps::take_of(const TaskSession& session) {
  std::vector<TaskStep> out;
  MutexLock lock(mu_);
  std::vector<int64_t> ids;
  for (const auto& [id, step] : steps_) {
    if (step.graph && step.graph->session().get() == &session) ids.push_back(id);
  }
  for (const int64_t id : ids) out.push_back(take_locked(id));
  return out;
}

bool TaskSteps::forget_idle(int64_t now_ns, int64_t idle_ns) {
  std::vector<std::pair<int64_t, Ref<StepRendezvous>>> without_run;
  {
    MutexLock lock(mu_);
    for (const auto& [id, step] : steps_) {
      if (!step.graph) without_run.emplace_back(id, step.rendezvous);
    }
  }
  bool left = false;
  for (const auto& [id, rendezvous] : without_run) {
    // Who waits is a peer whose own step lives: it will be told when that ends.
    const bool waits = !rendezvous->waiting().empty();
    MutexLock lock(mu_);
    const auto it = steps_.find(id);
    if (it == steps_.end() || it->second.graph) continue;
    int64_t& idle_since = it->second.idle_ns;
    if (waits) {
      idle_since = -1;
    } else if (idle_since < 0) {
      idle_since = now_ns;
    } else if (now_ns - idle_since >= idle_ns) {
      (void)take_locked(id);
      continue;
    }
    left = true;
  }
  return left;
}

std::vector<TaskStep> TaskSteps::shut_down(Status reason) {
  std::vector<TaskStep> out;
  MutexLock lock(mu_);
  stopped_ = std::move(reason);
  for (auto& [id, step] : steps_) out.push_back(std::move(step));
  steps_.clear();
  return out;
}

std::vector<TaskStep> TaskSteps::all() const {
  std::vector<TaskStep> out;
  MutexLock lock(mu_);
  for (const auto& [id, step] : steps_) out.push_back(step);
  return out;
}

}  // namespace millrace
