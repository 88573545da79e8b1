#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/kernel/device.h"
#include "millrace/runtime/device_set.h"
#include "millrace/runtime/executable.h"
#include "millrace/runtime/plan.h"

namespace millrace {

// The plans of one task for one signature, one for each device that takes part, run together.
// Shared by all runs.
class PlanSet : public Executable {
 public:
  // Cuts `graph` (placed on devices of one task) by device and compiles the parts. `devices` are
  // those of the task, `all` the whole cluster's.
  static Result<Ref<PlanSet>> build(const Subgraph& graph, std::span<const Ref<Device>> devices,
                                    const DeviceSet& all, const CompileOptions& options);

  Status run(const StepArgs& args) const override;
  void run_async(const StepArgs& args, UniqueFunction<void(Status)> done) const override;
  Result<Ref<PartialRun>> start_partial(const StepArgs& args,
                                        UniqueFunction<void(Status)> on_end) const override;
  bool straight(Gear gear) const override {
    return plans_.size() == 1 && runs_straight(*plans_[0], gear);
  }
  bool has_blocking() const override;
  std::string to_string() const override;
  const std::vector<Ref<Plan>>& plans() const { return plans_; }

 private:
  struct Run;
  ExecuteArgs execute_args(const StepArgs& args, const std::string& step_container) const;
  void end_step(const std::string& step_container) const;

  std::vector<Ref<Plan>> plans_;
  bool has_step_state_ = false;
};

}  // namespace millrace
