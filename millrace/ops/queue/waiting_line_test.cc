// test-labels: threads
#include "millrace/ops/queue/waiting_line.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

// Keys that are handed out one by one to who waits for one.
class Keys {
 public:
  using Done = UniqueFunction<void(Status, int)>;

  void take(CancellationToken* cancel, Done done) {
    Line finished;
    {
      MutexLock lock(mu_);
      const Line::Place place = line_.add({.done = std::move(done)}, cancel);
      serve(finished);
      if (!line_.watch(place, [this, place] { abandon(place); })) drop(place, finished);
    }
    finished.tell();
  }
  void put(int key) {
    Line finished;
    {
      MutexLock lock(mu_);
      keys_.push_back(key);
      serve(finished);
    }
    finished.tell();
  }
  size_t waiting() {
    MutexLock lock(mu_);
    return line_.size();
  }

 private:
  struct Request {
    Status status{};
    int key = 0;
    Done done;
    void tell() { done(std::move(status), key); }
  };
  using Line = WaitingLine<Request>;

  void serve(Line& finished) MR_REQUIRES(mu_) {
    while (!line_.empty() && !keys_.empty()) {
      line_.begin()->key = keys_.back();
      keys_.pop_back();
      line_.finish(line_.begin(), finished);
    }
  }
  void drop(Line::Place place, Line& finished) MR_REQUIRES(mu_) {
    place->status = cancelled("gone");
    line_.finish(place, finished);
  }
  void abandon(Line::Place place) {
    Line finished;
    {
      MutexLock lock(mu_);
      if (!place->waiting()) return;
      drop(place, finished);
    }
    finished.tell();
  }

  Mutex mu_;
  std::vector<int> keys_ MR_GUARDED_BY(mu_);
  Line line_ MR_GUARDED_BY(mu_);
};

TEST(WaitingLine, FirstComeFirstServed) {
  Keys keys;
  std::vector<int> got;
  for (int i = 0; i < 3; ++i) {
    keys.take(nullptr, [&, i](const Status& status, int key) {
      EXPECT_TRUE(status.ok());
      got.push_back(10 * i + key);
    });
  }
  EXPECT_EQ(keys.waiting(), 3u);
  for (int key = 1; key <= 3; ++key) keys.put(key);
  EXPECT_EQ(got, (std::vector<int>{1, 12, 23}));
  EXPECT_EQ(keys.waiting(), 0u);
}

TEST(WaitingLine, WhoIsCancelledLeavesTheLine) {
  Keys keys;
  const Ref<CancellationToken> token = make_ref<CancellationToken>();
  Status first;
  int second = 0;
  keys.take(token.get(), [&](Status status, int) { first = std::move(status); });
  keys.take(nullptr, [&](const Status&, int key) { second = key; });
  token->cancel(aborted("enough"));
  EXPECT_EQ(first, cancelled("gone"));
  EXPECT_EQ(keys.waiting(), 1u);
  keys.put(7);
  EXPECT_EQ(second, 7);
  // A token that has fallen before: nobody waits.
  keys.take(token.get(), [&](Status status, int) { first = std::move(status); });
  EXPECT_EQ(first, cancelled("gone"));
  EXPECT_EQ(keys.waiting(), 0u);
}

// Who was served has no callback left: the token may be cancelled, and who waited be gone.
TEST(WaitingLine, TheCallbackOfWhoIsToldIsGone) {
  const Ref<CancellationToken> token = make_ref<CancellationToken>();
  int told = 0;
  {
    Keys keys;
    keys.take(token.get(), [&](const Status& status, int) {
      EXPECT_TRUE(status.ok());
      ++told;
      token->cancel(aborted("from the one who was told"));
    });
    keys.put(1);
  }
  EXPECT_EQ(told, 1);
}

TEST(WaitingLineThreads, ToldOnceWhetherServedOrCancelled) {
  for (int round = 0; round < 500; ++round) {
    Keys keys;
    const Ref<CancellationToken> token = make_ref<CancellationToken>();
    std::atomic<int> served{0}, given_up{0};
    for (int i = 0; i < 4; ++i) {
      keys.take(token.get(),
                [&](const Status& status, int) { (status.ok() ? served : given_up).fetch_add(1); });
    }
    std::thread canceller([&] { token->cancel(aborted("enough")); });
    std::thread giver([&] {
      for (int key = 0; key < 4; ++key) keys.put(key);
    });
    canceller.join();
    giver.join();
    EXPECT_EQ(served + given_up, 4);
    EXPECT_EQ(keys.waiting(), 0u);
  }
}

}  // namespace
}  // namespace millrace
