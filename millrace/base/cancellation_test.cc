// test-labels: threads
#include "millrace/base/cancellation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(Cancellation, FirstReasonWinsAndCallbacksRunOnce) {
  Ref<CancellationToken> token = make_ref<CancellationToken>();
  EXPECT_TRUE(token->status().ok());
  int calls = 0;
  EXPECT_NE(token->on_cancel([&] { ++calls; }), 0u);
  token->cancel(deadline_exceeded("late"));
  token->cancel(internal("later"));
  EXPECT_TRUE(token->cancelled());
  EXPECT_EQ(token->status(), deadline_exceeded("late"));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(token->on_cancel([&] { ++calls; }), 0u);
  EXPECT_EQ(calls, 1);
}

TEST(Cancellation, RemovedCallbacksDoNotRun) {
  Ref<CancellationToken> token = make_ref<CancellationToken>();
  int calls = 0;
  const uint64_t kept = token->on_cancel([&] { ++calls; });
  const uint64_t removed = token->on_cancel([&] { calls += 100; });
  EXPECT_TRUE(token->remove(removed));
  token->cancel(cancelled("stop"));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(token->remove(kept));
}

TEST(Cancellation, ACallbackMayRemoveItselfAndOthers) {
  Ref<CancellationToken> token = make_ref<CancellationToken>();
  uint64_t first = 0, second = 0;
  bool second_ran = false;
  first = token->on_cancel([&] {
    EXPECT_FALSE(token->remove(first));
    EXPECT_TRUE(token->remove(second));
  });
  second = token->on_cancel([&] { second_ran = true; });
  token->cancel(cancelled("stop"));
  EXPECT_FALSE(second_ran);
}

TEST(Cancellation, ACallbackMayDropTheToken) {
  Ref<CancellationToken> parent = make_ref<CancellationToken>();
  Ref<CancellationToken> child = CancellationToken::make_child(parent);
  int calls = 0;
  child->on_cancel([&] { child = nullptr; });
  child->on_cancel([&] { ++calls; });
  parent->cancel(cancelled("stop"));
  EXPECT_FALSE(child);
  EXPECT_EQ(calls, 1);
}

TEST(Cancellation, ChildrenFallWithTheirParentOnly) {
  Ref<CancellationToken> parent = make_ref<CancellationToken>();
  Ref<CancellationToken> a = CancellationToken::make_child(parent);
  Ref<CancellationToken> b = CancellationToken::make_child(parent);
  Ref<CancellationToken> grandchild = CancellationToken::make_child(b);
  a->cancel(internal("a"));
  EXPECT_FALSE(parent->cancelled());
  EXPECT_FALSE(b->cancelled());
  parent->cancel(cancelled("all"));
  EXPECT_EQ(a->status(), internal("a"));
  EXPECT_EQ(grandchild->status(), cancelled("all"));
  EXPECT_EQ(CancellationToken::make_child(parent)->status(), cancelled("all"));
}

TEST(Cancellation, AChildKeepsItsParent) {
  Ref<CancellationToken> child = CancellationToken::make_child(make_ref<CancellationToken>());
  child->cancel(cancelled("stop"));
  EXPECT_TRUE(child->cancelled());
}

TEST(Cancellation, RemoveWaitsForARunningCallback) {
  for (int round = 0; round < 200; ++round) {
    Ref<CancellationToken> token = make_ref<CancellationToken>();
    auto touched = std::make_unique<int>(0);
    std::atomic<bool> started{false};
    const uint64_t ticket = token->on_cancel([&started, target = touched.get()] {
      started = true;
      for (int i = 0; i < 100; ++i) ++*target;
    });
    std::thread canceller([token] { token->cancel(cancelled("stop")); });
    while (round % 2 == 0 && !started) std::this_thread::yield();
    const bool removed = token->remove(ticket);
    EXPECT_EQ(*touched, removed ? 0 : 100);
    touched = nullptr;
    canceller.join();
  }
}

TEST(Cancellation, NoTicketIsNotWaitedFor) {
  Ref<CancellationToken> token = make_ref<CancellationToken>();
  std::thread([&] { token->cancel(cancelled("elsewhere")); }).join();
  EXPECT_EQ(token->on_cancel([] {}), 0);
  EXPECT_FALSE(token->remove(0));
}

TEST(Cancellation, SurvivesARaceOfAllCalls) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (unsigned round = 0; round < 100; ++round) {
    Ref<CancellationToken> root = make_ref<CancellationToken>();
    std::atomic<int> registered{0}, ran{0}, taken_back{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; ++t) {
      threads.emplace_back([&, random = std::minstd_rand(seed + round * 3 + t)]() mutable {
        for (int i = 0; i < 20; ++i) {
          Ref<CancellationToken> child = CancellationToken::make_child(root);
          const uint64_t ticket = child->on_cancel([&] { ++ran; });
          if (ticket == 0) continue;
          ++registered;
          if (random() % 2 == 0 && child->remove(ticket)) ++taken_back;
          if (random() % 16 == 0) child->cancel(aborted("mine"));
          if (random() % 64 == 0) root->cancel(cancelled("all"));
          // A callback left on a child that ends uncancelled is dropped with it.
          if (child->remove(ticket)) ++taken_back;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(registered, ran + taken_back);
  }
}

}  // namespace
}  // namespace millrace
