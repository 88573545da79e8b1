#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/kernel/recorder.h"
#include "millrace/runtime/plan.h"

namespace millrace {

// Runs of a set of plans as one recording of the device that does their work: a plan of a device
// that records, and one of a host that only hands feeds and fetches on. Thread-safe.
//
// A recording holds for the shapes of feeds that it was made with, and while the variables that it
// uses are there and lie where they did. Where it does not hold it is dropped, the run goes its
// ordinary way, and another recording is made once shapes stay the same again.
class RecordedRuns {
 public:
  // So many runs with feeds of the same shapes go before a recording: ordinary ones, in which
  // kernels choose their algorithms, and after some of which a plan for the shapes may take the
  // place of these (docs/plans.md).
  static constexpr int kRunsBefore = 20;
  // After so many recordings that did not hold none is made any more.
  static constexpr int kMostRecordings = 4;
  // And after so many attempts for which something was not ready.
  static constexpr int kMostAttempts = 20;

  // Null where no run of these plans can be recorded; `why` tells.
  static std::unique_ptr<RecordedRuns> make(const std::vector<Ref<Plan>>& plans, std::string& why);
  ~RecordedRuns();

  // Does all work of a step that was begun: its fetches are set, or it has failed. False, and
  // nothing has been done, where it must run its ordinary way.
  bool run(Step& step);

  // For people: how often the recording ran.
  std::string to_string() const;

 private:
  // A tensor between the plans, by its name there.
  struct Link {
    std::string name;
    int position = 0;  // among feeds or fetches
  };
  // A step that gives a reference, and the variable that it gave.
  struct Reference {
    int32_t step = 0;
    Ref<RefCell> cell;
  };

  using FeedShapes = std::vector<std::pair<DType, Shape>>;

  RecordedRuns() = default;
  FeedShapes shapes_of_feeds(const Step& step) const;
  bool fits(const FeedShapes& shapes, const Step& step) const;
  Status read_host_plan(const Plan& plan);
  Status read_device_plan(const Plan& plan);
  bool record_and_run(Step& step) MR_REQUIRES(mu_);
  Status record(Step& step) MR_REQUIRES(mu_);
  Status call_kernels(Step& step, Recorder& recorder) MR_REQUIRES(mu_);
  bool references_hold(Step& step) MR_REQUIRES(mu_);
  // False, and it is dropped, where it does not hold.
  bool run_recording(Step& step) MR_REQUIRES(mu_);
  void drop() MR_REQUIRES(mu_);

  Ref<Plan> plan_;  // the device's
  std::vector<Link> feeds_, fetches_;

  mutable Mutex mu_;  // one run at a time; others go their ordinary way
  bool given_up_ MR_GUARDED_BY(mu_) = false;
  int same_runs_ MR_GUARDED_BY(mu_) = 0, recordings_ MR_GUARDED_BY(mu_) = 0;
  int attempts_ MR_GUARDED_BY(mu_) = 0;
  int64_t replays_ MR_GUARDED_BY(mu_) = 0;
  // Of the feeds of the last ordinary run, and of those that the recording was made with.
  FeedShapes seen_ MR_GUARDED_BY(mu_), recorded_ MR_GUARDED_BY(mu_);
  Ref<Recording> recording_ MR_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<RecordedState>> states_ MR_GUARDED_BY(mu_);  // in order of identity
  std::vector<Reference> references_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
