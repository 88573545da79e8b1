#include "millrace/runtime/plan_set.h"

#include <algorithm>

#include "millrace/base/str_cat.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/runtime/memory.h"
#include "millrace/runtime/partition.h"

namespace millrace {

Result<Ref<PlanSet>> PlanSet::build(const Subgraph& graph, std::span<const Ref<Device>> devices,
                                    const DeviceSet& all, const CompileOptions& options) {
  MR_TRY_ASSIGN(std::vector<Partition> parts, partition(graph, PartitionBy::kDevice, all));
  Ref<PlanSet> set = make_ref<PlanSet>();
  for (Partition& part : parts) {
    Ref<Device> device;
    for (const Ref<Device>& d : devices) {
      if (d->name() == part.location) device = d;
    }
    if (!device) return internal("no device of this task is called ", part.location);
    if (device->info().own_memory) MR_TRY(add_copies(part.graph));
    MR_TRY_ASSIGN(Ref<Plan> plan, compile(part.graph, device, options));
    set->has_step_state_ |= plan->has_step_state;
    set->plans_.push_back(std::move(plan));
  }
  if (options.record_runs) {
    set->recorded_ = RecordedRuns::make(set->plans_, set->not_recorded_);
  } else {
    set->not_recorded_ = "the session's options say so";
  }
  return set;
}

bool PlanSet::has_blocking() const {
  for (const Ref<Plan>& plan : plans_) {
    if (plan->has_blocking) return true;
  }
  return false;
}

int64_t PlanSet::bytes() const {
  int64_t bytes = 0;
  for (const Ref<Plan>& plan : plans_) bytes += plan->bytes;
  return bytes;
}

std::string PlanSet::to_string() const {
  std::string out;
  for (const Ref<Plan>& plan : plans_) out += plan->to_string();
  return out;
}

std::string PlanSet::history() const {
  if (recorded_) return recorded_->to_string();
  const bool enqueues = std::ranges::any_of(plans_, &Plan::enqueues);
  return enqueues ? str_cat("not recorded: ", not_recorded_, "\n") : "";
}

void PlanSet::drop_step_state(const Step& step) const {
  if (!has_step_state_) return;
  const std::string container = step.container();
  for (const Ref<Plan>& plan : plans_) plan->device->resources().clear_container(container);
}

Step::Done PlanSet::after_clean_up(Step::Done done) const {
  if (!has_step_state_) return done;
  return [set = Ref<const PlanSet>(this), done = std::move(done)](Step& step) mutable {
    set->drop_step_state(step);
    done(step);
  };
}

void PlanSet::run_async(Ref<Step> step, Step::Done done) const {
  // The end of a plan may bring the end of this set.
  const std::vector<Ref<Plan>> plans = plans_;
  step->begin(static_cast<int>(plans.size()), after_clean_up(std::move(done)));
  if (recorded_ && recorded_->run(*step)) {
    for (size_t i = 0; i < plans.size(); ++i) step->end_part();
    return;
  }
  // All but the first begin elsewhere, so that none waits for a long one before it.
  for (size_t i = plans.size(); i-- > 1;) {
    step->schedule([step, plan = plans[i]] { run_parallel(plan, step); });
  }
  if (!plans.empty()) step->run_here([&] { run_parallel(plans[0], step); });
}

Status PlanSet::run_straight(Step& step) const {
  Status status = millrace::run_straight(*plans_[0], step);
  drop_step_state(step);
  return status;
}

Result<Ref<PartialRun>> PlanSet::start_partial(Ref<Step> step, Step::Done done) const {
  return PartialRun::start(plans_, std::move(step), after_clean_up(std::move(done)));
}

Ref<PartialRun> PlanSet::start_partial(Ref<Step> step, Step::Done done,
                                       PartialRun::OnFetch on_fetch) const {
  return PartialRun::start(plans_, std::move(step), after_clean_up(std::move(done)),
                           std::move(on_fetch));
}

}  // namespace millrace
