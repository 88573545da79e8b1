#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/wait_watch.h"
#include "millrace/distributed/worker_interface.h"
#include "millrace/runtime/executor.h"

namespace millrace {

// A partial run on other tasks, as its client sees it: feeds are given to the tasks that read them,
// and every fetch is asked for from the beginning, so that it comes as soon as it is there. A call
// whose connection was lost is made again. Thread-safe.
class RemotePartialRun final : public PartialRun {
 public:
  // A task that takes part, and the positions that its graph has.
  struct Place {
    std::string task;
    Ref<WorkerInterface> worker;
    std::vector<int> feeds, fetches;
  };
  struct Context {
    Ref<Step> step;
    int64_t step_id = 0;            // as the tasks know it
    Ref<CancellationToken> cancel;  // ends the calls, once the run has failed
    Ref<Timer> timer;
    // What the watch is told of, from the first fetch that has to be waited for to the run's end.
    Ref<WaitWatch> watch;
    Ref<Waiting> waiting;
    // What to do with an error, which the run's tasks may know more of.
    UniqueFunction<void(const Status&)> fail;
  };

  RemotePartialRun(std::vector<Place> places, Context context);

  // Each fetch is a part of the step, which was begun.
  int num_fetches() const;
  void start();
  // All parts of the step have ended. Fetches that came can still be taken.
  void end();

  Status feed(int position, Tensor value) override;
  // After a failure the error that the step ended with, so it waits for that end.
  Result<Tensor> fetch(int position, Deadline deadline) override;

 private:
  // `lost`: what became of the first call, where this is not it.
  void ask(const Place& place, int position, int repeated, Status lost);
  // Makes a call that ended so again, after a pause, if that is of use.
  bool again(const Place& place, const Status& status, int repeated, UniqueFunction<void()> call);
  void fetched(int position, const Status& status, Value value);

  const std::vector<Place> places_;
  Context context_;

  Mutex mu_;
  CondVar changed_;
  bool over_ MR_GUARDED_BY(mu_) = false;
  uint64_t wait_ MR_GUARDED_BY(mu_) = 0;  // of the watch
  std::vector<bool> fed_ MR_GUARDED_BY(mu_);
  std::vector<Value> values_ MR_GUARDED_BY(mu_);  // by position; empty: not there yet
};

}  // namespace millrace
