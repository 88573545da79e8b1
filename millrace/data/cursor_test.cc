// test-labels: threads
#include "millrace/data/cursor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "millrace/data/pipeline_testing.h"

namespace millrace::data {
namespace {

// Numbers, each of which waits until it may come.
class GateDataset final : public Dataset {
 public:
  GateDataset() : Dataset("Gate", {{DType::kInt64}, {PartialShape::scalar()}}, {}, true) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  void open(int64_t count) const {
    MutexLock lock(mu_);
    allowed_ += count;
    changed_.notify_all();
  }
  // Waits for the turn of number i; false when all is to end.
  bool wait(int64_t i, Environment& environment) const {
    MutexLock lock(mu_);
    ++waiting_;
    changed_.notify_all();
    while (allowed_ <= i && !environment.stopped()) {
      changed_.wait_until(mu_, Deadline::after_millis(1));
    }
    --waiting_;
    return allowed_ > i;
  }
  void wait_for_somebody_who_waits() const {
    MutexLock lock(mu_);
    while (waiting_ == 0) changed_.wait(mu_);
  }

 private:
  mutable Mutex mu_;
  mutable CondVar changed_;
  mutable int64_t allowed_ MR_GUARDED_BY(mu_) = 0;
  mutable int waiting_ MR_GUARDED_BY(mu_) = 0;
};

class GateIterator final : public IteratorOf<GateDataset> {
 public:
  GateIterator(const GateDataset& dataset, const Iteration& iteration)
      : IteratorOf(dataset, iteration) {}

 protected:
  Status fields(StateFields& state) override { return state.number(at_); }
  Status produce(Element& out, bool&) override {
    if (!dataset().wait(at_, environment())) return environment().status();
    out = {Tensor::scalar(at_++)};
    return ok_status();
  }

 private:
  int64_t at_ = 0;
};

Result<std::unique_ptr<Iterator>> GateDataset::iterate(const Iteration& iteration) const {
  return std::make_unique<GateIterator>(*this, iteration);
}

// A request and what came of it.
class Asked {
 public:
  explicit Asked(Cursor& cursor) {
    cursor.next(token_, [this](Result<Element> element) {
      MutexLock lock(mu_);
      result_ = element.ok() ? Result<int64_t>((*element)[0].item<int64_t>())
                             : Result<int64_t>(element.status());
      done_ = true;
      changed_.notify_all();
    });
  }
  ~Asked() { (void)wait(); }
  void cancel() { token_->cancel(cancelled("no longer wanted")); }
  Result<int64_t> wait() {
    MutexLock lock(mu_);
    while (!done_) changed_.wait(mu_);
    return result_;
  }

 private:
  Ref<CancellationToken> token_ = make_ref<CancellationToken>();
  Mutex mu_;
  CondVar changed_;
  bool done_ MR_GUARDED_BY(mu_) = false;
  Result<int64_t> result_ MR_GUARDED_BY(mu_) = Status(Code::kUnknown, "");
};

Ref<Dataset> ahead(Ref<Dataset> input, int64_t elements) {
  return make_dataset("PrefetchDataset", {std::move(input)}, {Tensor::scalar(elements)});
}

TEST(Cursor, ThreadsShareTheElements) {
  constexpr int64_t kElements = 2000;
  for (const bool prefetch : {false, true}) {
    Ref<Dataset> dataset = make_range(kElements);
    if (prefetch) dataset = ahead(dataset, 3);
    const Ref<Cursor> cursor = Cursor::make(dataset, make_environment()).value();
    std::vector<std::vector<int64_t>> seen(4);
    std::vector<std::thread> threads;
    for (std::vector<int64_t>& mine : seen) {
      threads.emplace_back([&] {
        for (;;) {
          Asked asked(*cursor);
          const Result<int64_t> value = asked.wait();
          if (!value.ok()) {
            EXPECT_EQ(value.status().code(), Code::kOutOfRange);
            return;
          }
          mine.push_back(*value);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    int64_t sum = 0, count = 0;
    for (const std::vector<int64_t>& mine : seen) {
      EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
      sum = std::accumulate(mine.begin(), mine.end(), sum);
      count += static_cast<int64_t>(mine.size());
    }
    EXPECT_EQ(count, kElements);
    EXPECT_EQ(sum, kElements * (kElements - 1) / 2);
    cursor->stop();
  }
}

TEST(Cursor, WhatWasMadeForACancelledRequestIsTheNextElement) {
  for (const int64_t elements : {0, 1}) {
    const Ref<GateDataset> gate = make_ref<GateDataset>();
    const Ref<Dataset> dataset = elements > 0 ? ahead(gate, elements) : Ref<Dataset>(gate);
    const Ref<Cursor> cursor = Cursor::make(dataset, make_environment()).value();
    Asked first(*cursor);
    gate->wait_for_somebody_who_waits();
    first.cancel();
    EXPECT_EQ(first.wait().status().code(), Code::kCancelled);
    gate->open(2);
    EXPECT_EQ(Asked(*cursor).wait().value(), 0);
    EXPECT_EQ(Asked(*cursor).wait().value(), 1);
    cursor->stop();
  }
}

TEST(Cursor, StopEndsAWait) {
  const Ref<GateDataset> gate = make_ref<GateDataset>();
  const Ref<Cursor> cursor = Cursor::make(ahead(gate, 1), make_environment()).value();
  Asked asked(*cursor);
  gate->wait_for_somebody_who_waits();
  cursor->stop();
  EXPECT_EQ(asked.wait().status().code(), Code::kCancelled);
}

TEST(Cursor, SavesWhatWorksAhead) {
  const Ref<Dataset> dataset = ahead(make_range(10), 4);
  const Ref<Cursor> cursor = Cursor::make(dataset, make_environment()).value();
  EXPECT_EQ(Asked(*cursor).wait().value(), 0);
  Mutex mu;
  CondVar changed;
  Ref<SavedState> state;
  cursor->save(nullptr, [&](Result<Ref<SavedState>> saved) {
    MutexLock lock(mu);
    state = saved.value();
    changed.notify_all();
  });
  {
    MutexLock lock(mu);
    while (!state) changed.wait(mu);
  }
  const Ref<Cursor> other = Cursor::make(dataset, make_environment()).value();
  ASSERT_TRUE(other->restore(*state).ok());
  for (int64_t i = 1; i < 10; ++i) EXPECT_EQ(Asked(*other).wait().value(), i);
  EXPECT_EQ(Asked(*other).wait().status().code(), Code::kOutOfRange);
  EXPECT_NE(cursor->table().find("Prefetch"), std::string::npos);
  cursor->stop();
  other->stop();
}

}  // namespace
}  // namespace millrace::data
