#pragma once

#include <cstdint>
#include <string>

#include "millrace/base/ref.h"
#include "millrace/kernel/step.h"
#include "millrace/runtime/executor.h"

namespace millrace {

// What a signature has been turned into: ready to run any number of times, also at once. In this
// process it is a PlanSet; a master has one that drives workers.
class Executable : public RefCounted {
 public:
  // Begins a step that has a rendezvous and a token of its own, and runs it; `done` is called once,
  // when nothing of it runs any more, perhaps before this returns. Then step.wait() returns.
  virtual void run_async(Ref<Step> step, Step::Done done) const = 0;
  // True when run_async() may compute before it returns, for as long as the step takes.
  virtual bool runs_on_caller() const { return true; }
  // A run that is fed and fetched piece by piece. Of step.fetches only the size counts.
  virtual Result<Ref<PartialRun>> start_partial(Ref<Step> step, Step::Done done) const = 0;
  // True when a run in this gear can happen on the caller's thread alone, by run_straight().
  virtual bool straight(Gear gear) const = 0;
  // Runs a step on this thread. INTERNAL where straight() says no for every gear.
  virtual Status run_straight(Step& step) const = 0;
  // True when some step may hold a thread for long.
  virtual bool has_blocking() const = 0;
  // About how much memory it holds, for who decides what to keep.
  virtual int64_t bytes() const = 0;
  // For people: the plans, one step a line.
  virtual std::string to_string() const = 0;
  // For people: a line on how runs went by now; empty where there is nothing to tell.
  virtual std::string history() const { return {}; }
};

}  // namespace millrace
