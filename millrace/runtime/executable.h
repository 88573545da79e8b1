#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/runtime/executor.h"

namespace millrace {

// One run of an Executable. What it points to lives until the run is over.
struct StepArgs {
  int64_t step_id = 0;
  std::span<const Tensor> feeds;  // by position in the signature
  std::span<Tensor> fetches;
  Gear gear = Gear::kAuto;
  int max_threads = 1 << 20;
  // Where the plans of the step meet; null: one is made when needed.
  Ref<Rendezvous> rendezvous;
  Ref<CancellationToken> cancel;  // null: the run cannot be stopped
  TraceCollector* trace = nullptr;
  FunctionRunner* functions = nullptr;
};

// What a signature has been turned into: ready to run any number of times, also at once. In this
// process it is a PlanSet; a master has one that drives workers.
class Executable : public RefCounted {
 public:
  // Runs one step and returns when nothing of it runs any more. Unless overridden, it waits for
  // run_async().
  virtual Status run(const StepArgs& args) const;
  // The same without waiting; `done` is called once, perhaps before this returns.
  virtual void run_async(const StepArgs& args, UniqueFunction<void(Status)> done) const = 0;
  // A run that is fed and fetched piece by piece. Of args.fetches only the size counts.
  virtual Result<Ref<PartialRun>> start_partial(const StepArgs& args,
                                                UniqueFunction<void(Status)> on_end) const = 0;
  // True when a run in this gear happens on the caller's thread alone.
  virtual bool straight(Gear gear) const = 0;
  // True when some step may hold a thread for long.
  virtual bool has_blocking() const = 0;
  // For people: the plans, one step a line.
  virtual std::string to_string() const = 0;
};

}  // namespace millrace
