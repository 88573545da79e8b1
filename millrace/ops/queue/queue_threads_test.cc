// test-labels: threads

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "millrace/ops/queue/queue.h"

namespace millrace {
namespace {

constexpr int kProducers = 4, kConsumers = 4, kPerProducer = 2000;

Ref<Queue> make_queue(QueueKind kind, int64_t capacity) {
  QueueSpec spec{.kind = kind,
                 .types = {DType::kInt64},
                 .shapes = {PartialShape::scalar()},
                 .capacity = capacity};
  return make_ref<Queue>("c", "q", std::move(spec));
}

QueueElement element(int64_t value) { return {Tensor::scalar(value)}; }

// What a request came to, once it is done.
class Outcome {
 public:
  Queue::Done done(const Ref<Queue>& queue) {
    return [this, queue](Status status, std::vector<QueueElement> elements) {
      MutexLock lock(mu_);
      EXPECT_FALSE(done_) << "done was called twice";
      status_ = std::move(status);
      elements_ = std::move(elements);
      done_ = true;
      changed_.notify_one();
    };
  }
  Status wait() {
    MutexLock lock(mu_);
    while (!done_) changed_.wait(mu_);
    return status_;
  }
  std::vector<int64_t> values() {
    MutexLock lock(mu_);
    std::vector<int64_t> out;
    for (const QueueElement& e : elements_) out.push_back(e[0].item<int64_t>());
    return out;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool done_ MR_GUARDED_BY(mu_) = false;
  Status status_ MR_GUARDED_BY(mu_);
  std::vector<QueueElement> elements_ MR_GUARDED_BY(mu_);
};

// Counts how often each value came out.
class Tally {
 public:
  void add(const std::vector<int64_t>& values) {
    for (int64_t v : values) counts_[static_cast<size_t>(v)].fetch_add(1);
  }
  void expect_each_once() const {
    for (size_t i = 0; i < counts_.size(); ++i) ASSERT_EQ(counts_[i].load(), 1) << "value " << i;
  }

 private:
  std::vector<std::atomic<int>> counts_ =
      std::vector<std::atomic<int>>(static_cast<size_t>(kProducers * kPerProducer));
};

class QueueThreads : public testing::TestWithParam<QueueKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, QueueThreads,
                         testing::Values(QueueKind::kFifo, QueueKind::kRandomShuffle,
                                         QueueKind::kPriority),
                         [](const auto& info) { return std::string(queue_kind_name(info.param)); });

// Producers and consumers whose requests are cancelled at random: a put that was cancelled is tried
// again for what was not put, a take just again.
TEST_P(QueueThreads, NothingIsLostOrDuplicated) {
  const Ref<Queue> queue = make_queue(GetParam(), 7);
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Tally tally;
  std::vector<std::thread> producers, consumers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kPerProducer; ++i) {
        while (true) {
          Ref<CancellationToken> token = make_ref<CancellationToken>();
          Outcome outcome;
          std::thread canceller;
          std::vector<QueueElement> elements;
          elements.push_back(element(p * kPerProducer + i));
          queue->enqueue(std::move(elements), token.get(), outcome.done(queue));
          if (i % 64 == p) canceller = std::thread([&] { token->cancel(cancelled("test")); });
          const Status status = outcome.wait();
          if (canceller.joinable()) canceller.join();
          if (status.ok()) break;
          ASSERT_EQ(status.code(), Code::kCancelled);
        }
      }
    });
  }
  for (int c = 0; c < kConsumers; ++c) {
    consumers.emplace_back([&, c] {
      std::mt19937 random(seed + static_cast<uint32_t>(c));
      for (int turn = 0;; ++turn) {
        Ref<CancellationToken> token = make_ref<CancellationToken>();
        Outcome outcome;
        std::thread canceller;
        queue->dequeue(1 + static_cast<int64_t>(random() % 9), random() % 2 == 0, token.get(),
                       outcome.done(queue));
        if (turn % 32 == c) canceller = std::thread([&] { token->cancel(cancelled("test")); });
        const Status status = outcome.wait();
        if (canceller.joinable()) canceller.join();
        tally.add(outcome.values());
        if (status.code() == Code::kOutOfRange) break;
      }
    });
  }
  for (std::thread& t : producers) t.join();
  Outcome closing;
  queue->close(false, nullptr, closing.done(queue));
  EXPECT_TRUE(closing.wait().ok());
  for (std::thread& t : consumers) t.join();
  // A consumer that wanted more than was left gave it back.
  while (queue->size() > 0) {
    Outcome rest;
    queue->dequeue(queue->size(), false, nullptr, rest.done(queue));
    ASSERT_TRUE(rest.wait().ok());
    tally.add(rest.values());
  }
  tally.expect_each_once();
}

TEST(QueueThreadsFifo, EachProducersElementsStayInOrder) {
  const Ref<Queue> queue = make_queue(QueueKind::kFifo, 3);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kPerProducer; i += 4) {
        std::vector<QueueElement> elements;
        for (int k = 0; k < 4; ++k) elements.push_back(element(p * kPerProducer + i + k));
        Outcome outcome;
        queue->enqueue(std::move(elements), nullptr, outcome.done(queue));
        ASSERT_TRUE(outcome.wait().ok());
      }
    });
  }
  std::vector<int64_t> seen(kProducers, -1);
  for (int i = 0; i < kProducers * kPerProducer; ++i) {
    Outcome outcome;
    queue->dequeue(1, false, nullptr, outcome.done(queue));
    ASSERT_TRUE(outcome.wait().ok());
    const int64_t value = outcome.values()[0];
    int64_t& last = seen[static_cast<size_t>(value / kPerProducer)];
    EXPECT_GT(value, last);
    last = value;
  }
  for (std::thread& t : producers) t.join();
}

// One token stands for a step with many waiting requests, some of which are served meanwhile.
TEST(QueueThreadsFifo, CancellationRacesWithService) {
  for (int round = 0; round < 300; ++round) {
    const Ref<Queue> queue = make_queue(QueueKind::kFifo, -1);
    Ref<CancellationToken> token = make_ref<CancellationToken>();
    std::vector<Outcome> takes(8);
    for (Outcome& take : takes) queue->dequeue(2, false, token.get(), take.done(queue));
    std::thread canceller([&] { token->cancel(cancelled("test")); });
    std::thread feeder([&] {
      for (int i = 0; i < 10; ++i) {
        std::vector<QueueElement> elements;
        elements.push_back(element(i));
        Outcome put;
        queue->enqueue(std::move(elements), nullptr, put.done(queue));
        EXPECT_TRUE(put.wait().ok());
      }
    });
    int64_t expected = 0;
    for (Outcome& take : takes) {
      if (!take.wait().ok()) continue;
      for (int64_t v : take.values()) EXPECT_EQ(v, expected++);
    }
    canceller.join();
    feeder.join();
    EXPECT_EQ(queue->size(), 10 - expected);
  }
}

TEST(QueueThreadsFifo, ClosingRacesWithPuttingAndTaking) {
  for (int round = 0; round < 300; ++round) {
    const Ref<Queue> queue = make_queue(QueueKind::kFifo, 2);
    std::atomic<int> put{0}, taken{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        while (true) {
          std::vector<QueueElement> elements;
          elements.push_back(element(1));
          Outcome outcome;
          queue->enqueue(std::move(elements), nullptr, outcome.done(queue));
          if (!outcome.wait().ok()) break;
          put.fetch_add(1);
        }
      });
      threads.emplace_back([&] {
        while (true) {
          Outcome outcome;
          queue->dequeue(1, false, nullptr, outcome.done(queue));
          if (!outcome.wait().ok()) break;
          taken.fetch_add(1);
        }
      });
    }
    Outcome closing;
    queue->close(round % 2 == 0, nullptr, closing.done(queue));
    EXPECT_TRUE(closing.wait().ok());
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(put.load(), taken.load());
    EXPECT_EQ(queue->size(), 0);
  }
}

}  // namespace
}  // namespace millrace
