#include "millrace/data/prefetch.h"

#include <algorithm>
#include <deque>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/outcome.h"

namespace millrace::data {
namespace {

// What the thread that works ahead and the one that asks share. The thread holds a reference, so
// the iterator may go first.
class Ahead final : public RefCounted {
 public:
  Ahead(Ref<Environment> environment, std::unique_ptr<Iterator> input, AheadOptions options)
      : environment_(std::move(environment)),
        input_(std::move(input)),
        autotune_(options.elements == kAutotune),
        budget_(environment_->memory_budget / options.shared_by),
        limit_(autotune_ ? 2 : options.elements) {}
  void stop() { environment_->stop(); }

  Status take(Element& out, bool& end, Stage* stage) {
    MutexLock lock(mu_);
    start_thread();
    if (stage != nullptr) stage->add_fill(static_cast<int64_t>(buffer_.size()), limit_);
    if (buffer_.empty() && autotune_ && limit_ < kMostAhead) limit_ *= 2;
    while (buffer_.empty() && !environment_->stopped()) changed_.wait(mu_);
    if (buffer_.empty()) return environment_->status();
    end = buffer_.front().end;
    if (end) return ok_status();  // stays, for who asks again
    bytes_ -= buffer_.front().bytes();
    Status status = buffer_.front().give(out, end);
    buffer_.pop_front();
    const bool wake = wants_more();
    lock.unlock();
    if (wake) changed_.notify_all();
    return status;
  }

  bool ready() {
    MutexLock lock(mu_);
    return !buffer_.empty();
  }

  // Waits until the thread stands still, and says what it has and where it is. Read before anybody
  // asked.
  Status fields(StateFields& state) {
    MutexLock lock(mu_);
    ++paused_;
    while (working_) changed_.wait(mu_);
    Status status =
        state.list(buffer_, INT64_MAX, [&](Outcome& outcome) { return outcome.fields(state); });
    bytes_ = 0;
    for (const Outcome& outcome : buffer_) bytes_ += outcome.bytes();
    // Without the lock, which stopping takes: what is before may wait for calls to end.
    lock.unlock();
    if (status.ok()) status = state.iterator(*input_);
    lock.lock();
    --paused_;
    changed_.notify_all();
    return status;
  }

 private:
  void start_thread() MR_REQUIRES(mu_) {
    if (started_) return;
    started_ = true;
    ThreadPool::global().schedule_blocking([self = Ref<Ahead>(this)] { self->work(); });
  }

  // Whether the thread is to be woken: for one element at a time, that would take longer than to
  // make many of them.
  bool wants_more() const MR_REQUIRES(mu_) {
    constexpr int64_t kSmall = 4;
    return limit_ <= kSmall || static_cast<int64_t>(buffer_.size()) <= limit_ / 2;
  }
  bool has_room() const MR_REQUIRES(mu_) {
    if (buffer_.empty()) return true;
    if (buffer_.back().end || static_cast<int64_t>(buffer_.size()) >= limit_) return false;
    return environment_->memory_budget <= 0 || bytes_ < budget_;
  }

  void work() {
    MutexLock lock(mu_);
    for (;;) {
      while (!environment_->stopped() && (paused_ > 0 || !has_room())) changed_.wait(mu_);
      if (environment_->stopped()) return;
      working_ = true;
      lock.unlock();
      Outcome outcome;
      outcome.fill(*input_);
      lock.lock();
      working_ = false;
      bytes_ += outcome.bytes();
      buffer_.push_back(std::move(outcome));
      changed_.notify_all();
    }
  }

  const Ref<Environment> environment_;
  const std::unique_ptr<Iterator> input_;  // the thread's, while working_
  const bool autotune_;
  const int64_t budget_;  // bytes, where there is a limit

  Mutex mu_;
  CondVar changed_;
  int64_t limit_ MR_GUARDED_BY(mu_);
  int64_t bytes_ MR_GUARDED_BY(mu_) = 0;
  int paused_ MR_GUARDED_BY(mu_) = 0;
  bool started_ MR_GUARDED_BY(mu_) = false;
  bool working_ MR_GUARDED_BY(mu_) = false;
  std::deque<Outcome> buffer_ MR_GUARDED_BY(mu_);
  const WakeOnStop wake_{*environment_, mu_, changed_};
};

class AheadIterator final : public Iterator {
 public:
  AheadIterator(const Dataset& owner, const Iteration& iteration, Ref<Ahead> ahead, Stage* stage)
      : Iterator(owner, iteration), ahead_(std::move(ahead)), buffer_stage_(stage) {}
  ~AheadIterator() override { ahead_->stop(); }
  bool ready() override { return ahead_->ready(); }

 protected:
  std::string_view state_name() const override { return "Prefetch"; }
  Status fields(StateFields& state) override { return ahead_->fields(state); }
  Status produce(Element& out, bool& end) override { return ahead_->take(out, end, buffer_stage_); }

 private:
  const Ref<Ahead> ahead_;
  Stage* const buffer_stage_;
};

class PrefetchDataset final : public Dataset {
 public:
  PrefetchDataset(Ref<Dataset> input, int64_t elements)
      : Dataset("Prefetch", input->spec(), {input}, true), elements_(elements) {}
  int64_t size() const override { return inputs()[0]->size(); }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override {
    if (elements_ == 0) return inputs()[0]->iterate(iteration);
    return iterate_ahead(*this, *inputs()[0], iteration, {.elements = elements_},
                         iteration.stages->find(*this));
  }

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const int64_t elements, ctx.int_scalar_input(1));
    if (elements < kAutotune) {
      return invalid_argument("buffer_size must be >= 0 or -1 for autotuning, got ", elements);
    }
    return make_ref<PrefetchDataset>(std::move(input), elements);
  }

 private:
  const int64_t elements_;
};

}  // namespace

Result<std::unique_ptr<Iterator>> iterate_ahead(const Dataset& owner, const Dataset& dataset,
                                                const Iteration& iteration, AheadOptions options,
                                                Stage* stage) {
  Ref<Environment> own = Environment::make_child(*iteration.environment);
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> input, dataset.iterate(iteration.within(own)));
  Ref<Ahead> ahead = make_ref<Ahead>(std::move(own), std::move(input), options);
  return std::make_unique<AheadIterator>(owner, iteration, std::move(ahead), stage);
}

void register_prefetch(Registry& registry) {
  add_dataset_op(registry,
                 {.name = "PrefetchDataset",
                  .doc = "The elements of a dataset, made ahead on another thread.",
                  .inputs = {{"input_dataset", "variant"},
                             {"buffer_size", "int64", "How many; -1: as many as it takes."}},
                  .attrs = {{"slack_period", "int = 0"},
                            {"legacy_autotune", "bool = true"},
                            {"buffer_size_min", "int = 0"}}},
                 dataset_kernel<PrefetchDataset::make>);
}

}  // namespace millrace::data
