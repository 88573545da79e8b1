#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/kernel/device.h"
#include "millrace/runtime/device_set.h"
#include "millrace/runtime/executable.h"
#include "millrace/runtime/plan.h"
#include "millrace/runtime/recorded_runs.h"

namespace millrace {

// The plans of one task for one signature, one for each device that takes part, run together.
// Shared by all runs.
class PlanSet : public Executable {
 public:
  // Cuts `graph` (placed on devices of one task) by device, adds the copies between the memory of a
  // device and the host's, and compiles the parts. `devices` are those of the task, `all` the whole
  // cluster's.
  static Result<Ref<PlanSet>> build(const Subgraph& graph, std::span<const Ref<Device>> devices,
                                    const DeviceSet& all, const CompileOptions& options);

  void run_async(Ref<Step> step, Step::Done done) const override;
  Result<Ref<PartialRun>> start_partial(Ref<Step> step, Step::Done done) const override;
  // The same, with fetches given to `on_fetch`.
  Ref<PartialRun> start_partial(Ref<Step> step, Step::Done done,
                                PartialRun::OnFetch on_fetch) const;
  bool straight(Gear gear) const override {
    return plans_.size() == 1 && runs_straight(*plans_[0], gear);
  }
  Status run_straight(Step& step) const override;
  bool has_blocking() const override;
  int64_t bytes() const override;
  std::string to_string() const override;
  std::string history() const override;
  const std::vector<Ref<Plan>>& plans() const { return plans_; }

 private:
  void drop_step_state(const Step& step) const;
  // `done`, after the step's state has been dropped.
  Step::Done after_clean_up(Step::Done done) const;

  std::vector<Ref<Plan>> plans_;
  bool has_step_state_ = false;
  std::unique_ptr<RecordedRuns> recorded_;  // null: none is
  std::string not_recorded_;                // why
};

}  // namespace millrace
