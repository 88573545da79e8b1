#include "millrace/runtime/plan_set.h"

#include <atomic>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/runtime/partition.h"

namespace millrace {
namespace {

const std::string& default_container() {
  static const std::string* name = new std::string(ResourceManager::kDefaultContainer);
  return *name;
}

std::string step_container_name(int64_t step_id) { return str_cat("__per_step_", step_id); }

}  // namespace

Result<Ref<PlanSet>> PlanSet::build(const Subgraph& graph, std::span<const Ref<Device>> devices,
                                    const DeviceSet& all, const CompileOptions& options) {
  MR_TRY_ASSIGN(std::vector<Partition> parts, partition(graph, PartitionBy::kDevice, all));
  Ref<PlanSet> set = make_ref<PlanSet>();
  for (const Partition& part : parts) {
    Ref<Device> device;
    for (const Ref<Device>& d : devices) {
      if (d->name() == part.location) device = d;
    }
    if (!device) return internal("no device of this task is called ", part.location);
    MR_TRY_ASSIGN(Ref<Plan> plan, compile(part.graph, device, options));
    set->has_step_state_ |= plan->has_step_state;
    set->plans_.push_back(std::move(plan));
  }
  return set;
}

bool PlanSet::has_blocking() const {
  for (const Ref<Plan>& plan : plans_) {
    if (plan->has_blocking) return true;
  }
  return false;
}

std::string PlanSet::to_string() const {
  std::string out;
  for (const Ref<Plan>& plan : plans_) out += plan->to_string();
  return out;
}

ExecuteArgs PlanSet::execute_args(const StepArgs& args, const std::string& step_container) const {
  ExecuteArgs out;
  out.step.step_id = args.step_id;
  out.step.pool = &ThreadPool::global();
  out.step.max_threads = args.max_threads;
  out.step.rendezvous = args.rendezvous.get();
  out.step.cancel = args.cancel.get();
  out.step.step_container = &step_container;
  out.step.default_container = &default_container();
  out.step.functions = args.functions;
  out.step.trace = args.trace;
  out.feeds = args.feeds;
  out.fetches = args.fetches;
  return out;
}

void PlanSet::end_step(const std::string& step_container) const {
  if (!has_step_state_) return;
  for (const Ref<Plan>& plan : plans_) plan->device->resources().clear_container(step_container);
}

// What the plans of one run share while it lasts.
struct PlanSet::Run : RefCounted {
  Ref<const PlanSet> set;
  StepArgs args;
  std::string step_container;
  std::atomic<size_t> running{0};
  Mutex mu;
  Status status MR_GUARDED_BY(mu);
  UniqueFunction<void(Status)> done;

  Run(const PlanSet* owner, const StepArgs& step, UniqueFunction<void(Status)> on_done)
      : set(owner),
        args(step),
        step_container(step_container_name(step.step_id)),
        running(owner->plans_.size()),
        done(std::move(on_done)) {
    if (!args.rendezvous) args.rendezvous = make_local_rendezvous();
    // An error in one plan must reach the others.
    if (!args.cancel) args.cancel = make_ref<CancellationToken>();
  }

  void plan_ended(Status ended) {
    {
      MutexLock lock(mu);
      if (status.ok()) status = std::move(ended);
    }
    if (running.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    set->end_step(step_container);
    Status last;
    {
      MutexLock lock(mu);
      last = std::move(status);
    }
    UniqueFunction<void(Status)> callback = std::move(done);
    callback(std::move(last));
  }
};

void PlanSet::run_async(const StepArgs& args, UniqueFunction<void(Status)> done) const {
  Ref<Run> run = make_ref<Run>(this, args, std::move(done));
  ExecuteArgs execute = execute_args(run->args, run->step_container);
  if (plans_.empty()) return run->done(ok_status());
  // All but the first begin elsewhere, so that none waits for a long one before it.
  for (size_t i = plans_.size(); i-- > 0;) {
    auto start = [run, execute, plan = plans_[i]] {
      run_parallel(plan, execute, [run](Status status) { run->plan_ended(std::move(status)); });
    };
    if (i == 0) {
      start();
    } else {
      ThreadPool::global().schedule(std::move(start));
    }
  }
}

Status PlanSet::run(const StepArgs& args) const {
  if (plans_.empty()) return ok_status();
  if (straight(args.gear)) {
    static const std::string* none = new std::string;
    if (!has_step_state_) return run_straight(*plans_[0], execute_args(args, *none));
    std::string container = step_container_name(args.step_id);
    Status status = run_straight(*plans_[0], execute_args(args, container));
    end_step(container);
    return status;
  }
  return Executable::run(args);
}

Result<Ref<PartialRun>> PlanSet::start_partial(const StepArgs& args,
                                               UniqueFunction<void(Status)> on_end) const {
  Ref<Run> run = make_ref<Run>(this, args, std::move(on_end));
  run->running = 1;
  return PartialRun::start(plans_, execute_args(run->args, run->step_container),
                           [run](Status status) { run->plan_ended(std::move(status)); });
}

}  // namespace millrace
