#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/runtime/parallel_run.h"

namespace millrace {
namespace {

// The plans of one step, fed and fetched from outside.
class PartialRunImpl : public PartialRun {
 public:
  PartialRunImpl(const std::vector<Ref<Plan>>& plans, Ref<Step> step, OnFetch on_fetch)
      : step_(std::move(step)),
        on_fetch_(std::move(on_fetch)),
        fetched_(step_->fetches.size()),
        has_(step_->fetches.size()) {
    MutexLock lock(mu_);
    for (const Ref<Plan>& plan : plans) {
      Ref<ParallelRun> run = make_ref<ParallelRun>(plan, step_);
      run->on_fetch = [self = Ref<PartialRunImpl>(this)](int position, Tensor value) {
        self->set_fetch(position, std::move(value));
      };
      for (int32_t s : plan->feeds) {
        size_t position = static_cast<size_t>(plan->steps[static_cast<size_t>(s)].position);
        if (position >= feeds_.size()) feeds_.resize(position + 1);
        feeds_[position].push_back({run, s});
      }
      runs_.push_back({run, static_cast<int64_t>(plan->feeds.size())});
    }
  }

  void start(Step::Done done) {
    std::vector<RunState> runs;
    {
      MutexLock lock(mu_);
      runs = runs_;
    }
    step_->begin(static_cast<int>(runs.size()),
                 [self = Ref<PartialRunImpl>(this), done = std::move(done)](Step& step) mutable {
                   self->end();
                   done(step);
                 });
    for (RunState& r : runs) r.run->start(/*feeds_later=*/true);
    // Feeds that have not come keep a run alive; a cancelled one does not wait for them.
    uint64_t ticket =
        step_->cancel->on_cancel([self = Ref<PartialRunImpl>(this)] { self->abandon(); });
    if (ticket == 0) return abandon();
    {
      MutexLock lock(mu_);
      if (!over_) {
        ticket_ = ticket;
        return;
      }
    }
    step_->cancel->remove(ticket);
  }

  Status feed(int position, Tensor value) override {
    std::vector<Target> targets;
    {
      MutexLock lock(mu_);
      MR_TRY(step_->error());
      size_t p = static_cast<size_t>(position);
      if (p < fed_.size() && fed_[p]) {
        return invalid_argument("feed ", position, " of this partial run was fed already");
      }
      if (p >= feeds_.size()) return ok_status();  // no plan needs it
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
      MR_TRY(step_->error());
      if (over_) return internal("fetch ", position, " was never computed");
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
    if (on_fetch_) return on_fetch_(position, std::move(value));
    MutexLock lock(mu_);
    fetched_[static_cast<size_t>(position)] = std::move(value);
    has_[static_cast<size_t>(position)] = true;
    changed_.notify_all();
  }

  // Feeds that have not come will not: the step was cancelled.
  void abandon() {
    step_->fail(step_->cancel->status());
    std::vector<RunState> runs;
    {
      MutexLock lock(mu_);
      runs = runs_;
      for (RunState& r : runs_) r.unfed = 0;
      feeds_.assign(feeds_.size(), {});
      changed_.notify_all();
    }
    for (RunState& r : runs) r.run->abandon_feeds(r.unfed);
  }

  // Lets go of everything that leads back here.
  void end() {
    std::vector<RunState> runs;
    std::vector<std::vector<Target>> feeds;
    uint64_t ticket = 0;
    {
      MutexLock lock(mu_);
      over_ = true;
      runs.swap(runs_);
      feeds.swap(feeds_);
      ticket = std::exchange(ticket_, 0);
      changed_.notify_all();
    }
    if (ticket != 0) step_->cancel->remove(ticket);
    for (RunState& r : runs) r.run->on_fetch = nullptr;
  }

  const Ref<Step> step_;
  OnFetch on_fetch_;  // empty: fetches are kept
  Mutex mu_;
  CondVar changed_;
  bool over_ MR_GUARDED_BY(mu_) = false;
  uint64_t ticket_ MR_GUARDED_BY(mu_) = 0;  // of the step's token
  std::vector<std::vector<Target>> feeds_
      MR_GUARDED_BY(mu_);  // by position: who still waits for it
  std::vector<bool> fed_ MR_GUARDED_BY(mu_);
  std::vector<RunState> runs_ MR_GUARDED_BY(mu_);
  std::vector<Tensor> fetched_ MR_GUARDED_BY(mu_);
  std::vector<bool> has_ MR_GUARDED_BY(mu_);
};

}  // namespace

Ref<PartialRun> PartialRun::start(const std::vector<Ref<Plan>>& plans, Ref<Step> step,
                                  Step::Done done, OnFetch on_fetch) {
  Ref<PartialRunImpl> run = make_ref<PartialRunImpl>(plans, std::move(step), std::move(on_fetch));
  run->start(std::move(done));
  return run;
}

}  // namespace millrace
