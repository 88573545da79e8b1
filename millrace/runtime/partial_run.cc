#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/runtime/parallel_run.h"

namespace millrace {
namespace {

// Several plans of one step, fed and fetched from outside.
class PartialRunImpl : public PartialRun {
 public:
  PartialRunImpl(std::vector<Ref<Plan>> plans, const ExecuteArgs& args,
                 UniqueFunction<void(Status)> on_end)
      : fetched_(args.fetches.size()),
        has_(args.fetches.size()),
        on_end_(std::move(on_end)),
        running_(static_cast<int>(plans.size())),
        cancel_(args.step.cancel) {
    for (Ref<Plan>& plan : plans) {
      Ref<PartialRunImpl> self(this);
      Ref<ParallelRun> run =
          make_ref<ParallelRun>(plan, args, [self](Status status) { self->ended(status); });
      run->on_fetch = [this](int position, Tensor value) { set_fetch(position, std::move(value)); };
      for (int32_t step : plan->feeds) {
        int position = plan->steps[static_cast<size_t>(step)].position;
        if (position >= static_cast<int>(feeds_.size()))
          feeds_.resize(static_cast<size_t>(position) + 1);
        feeds_[static_cast<size_t>(position)].push_back({run, step});
      }
      runs_.push_back({run, static_cast<int64_t>(plan->feeds.size())});
    }
  }

  void start() {
    for (RunState& r : runs_) r.run->start(/*feeds_later=*/true);
    if (cancel_ != nullptr) {
      // Feeds that have not come keep a run alive; a cancelled one does not wait for them.
      Ref<PartialRunImpl> self(this);
      if (cancel_->on_cancel([self] { self->abandon(); }) == 0) abandon();
    }
  }

  Status feed(int position, Tensor value) override {
    std::vector<Target> targets;
    {
      MutexLock lock(mu_);
      if (!status_.ok()) return status_;
      size_t p = static_cast<size_t>(position);
      if (p >= feeds_.size()) return ok_status();  // no plan needs it
      if (feeds_[p].empty() && fed_.size() > p && fed_[p]) {
        return invalid_argument("feed ", position, " of this partial run was fed already");
      }
      if (fed_.size() <= p) fed_.resize(p + 1);
      fed_[p] = true;
      targets = std::move(feeds_[p]);
      feeds_[p].clear();
      for (Target& t : targets) {
        for (RunState& r : runs_) r.unfed -= r.run == t.run ? 1 : 0;
      }
    }
    for (Target& t : targets) t.run->feed(t.step, value);
    return ok_status();
  }

  Result<Tensor> fetch(int position, Deadline deadline) override {
    size_t p = static_cast<size_t>(position);
    MutexLock lock(mu_);
    while (!has_[p]) {
      if (!status_.ok()) return status_;
      if (running_ == 0) return internal("fetch ", position, " was never computed");
      if (!changed_.wait_until(mu_, deadline)) {
        return deadline_exceeded("waited in vain for fetch ", position, " of a partial run");
      }
    }
    if (!fetched_[p].valid()) {
      return invalid_argument("the tensor fetched at position ", position,
                              " was not valid: it lies on a branch that was not taken");
    }
    return fetched_[p];
  }

 private:
  struct Target {
    Ref<ParallelRun> run;
    int32_t step;
  };
  struct RunState {
    Ref<ParallelRun> run;
    int64_t unfed;
  };

  void set_fetch(int position, Tensor value) {
    MutexLock lock(mu_);
    fetched_[static_cast<size_t>(position)] = std::move(value);
    has_[static_cast<size_t>(position)] = true;
    changed_.notify_all();
  }

  void abandon() {
    std::vector<RunState> runs;
    {
      MutexLock lock(mu_);
      if (status_.ok()) status_ = cancel_->status();
      for (RunState& r : runs_) {
        runs.push_back(r);
        r.unfed = 0;
      }
      feeds_.assign(feeds_.size(), {});
      changed_.notify_all();
    }
    for (RunState& r : runs) {
      r.run->fail(cancel_->status());
      r.run->abandon_feeds(r.unfed);
    }
  }

  void ended(const Status& status) {
    UniqueFunction<void(Status)> on_end;
    Status final_status;
    {
      MutexLock lock(mu_);
      if (status_.ok() && !status.ok()) status_ = status;
      changed_.notify_all();
      if (--running_ > 0) return;
      final_status = status_;
      on_end = std::move(on_end_);
      runs_.clear();
    }
    if (on_end) on_end(final_status);
  }

  Mutex mu_;
  CondVar changed_;
  Status status_ MR_GUARDED_BY(mu_);
  std::vector<std::vector<Target>> feeds_
      MR_GUARDED_BY(mu_);  // by position: who still waits for it
  std::vector<bool> fed_ MR_GUARDED_BY(mu_);
  std::vector<RunState> runs_ MR_GUARDED_BY(mu_);
  std::vector<Tensor> fetched_ MR_GUARDED_BY(mu_);
  std::vector<bool> has_ MR_GUARDED_BY(mu_);
  UniqueFunction<void(Status)> on_end_ MR_GUARDED_BY(mu_);
  int running_ MR_GUARDED_BY(mu_);
  CancellationToken* cancel_;
};

}  // namespace

Ref<PartialRun> PartialRun::start(std::vector<Ref<Plan>> plans, const ExecuteArgs& args,
                                  UniqueFunction<void(Status)> on_end) {
  Ref<PartialRunImpl> run = make_ref<PartialRunImpl>(std::move(plans), args, std::move(on_end));
  run->start();
  return run;
}

}  // namespace millrace
