// test-labels: threads
#include "millrace/base/ref.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace millrace {
namespace {

struct Counted : RefCounted {
  explicit Counted(int* alive) : alive(alive) { ++*alive; }
  int* alive;

 protected:
  ~Counted() override { --*alive; }
};

struct Derived : Counted {
  using Counted::Counted;
};

TEST(Ref, EndsTheObjectWithTheLastReference) {
  int alive = 0;
  Ref<Counted> a = make_ref<Counted>(&alive);
  EXPECT_TRUE(a->unique());
  Ref<Counted> b = a;
  EXPECT_FALSE(a->unique());
  a = nullptr;
  EXPECT_EQ(alive, 1);
  EXPECT_TRUE(b->unique());
  b = nullptr;
  EXPECT_EQ(alive, 0);
}

TEST(Ref, MovesDetachesAndConverts) {
  int alive = 0;
  Ref<Derived> derived = make_ref<Derived>(&alive);
  Ref<Counted> base = std::move(derived);
  EXPECT_FALSE(derived);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(base->unique());
  Counted* bare = base.detach();
  EXPECT_EQ(alive, 1);
  Ref<Counted>::adopt(bare);
  EXPECT_EQ(alive, 0);
}

TEST(Ref, AssigningToItselfKeepsTheObject) {
  int alive = 0;
  Ref<Counted> a = make_ref<Counted>(&alive);
  const Ref<Counted>& alias = a;
  a = alias;
  EXPECT_EQ(alive, 1);
}

TEST(Ref, CountsFromManyThreads) {
  int alive = 0;
  Ref<Counted> shared = make_ref<Counted>(&alive);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([mine = shared] {
      // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
      for (int i = 0; i < 1000; ++i) Ref<Counted> copy = mine;
    });
  }
  shared = nullptr;
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace millrace
