#include "millrace/distributed/wait_watch.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

constexpr int64_t kMilli = 1'000'000;

struct Noted : Waiting {
  void tell(int64_t waited_ms) override { told.push_back(waited_ms); }
  std::vector<int64_t> told;
};

TEST(WaitWatch, TellsAtTheFirstMomentAndAtEachDouble) {
  const Ref<ManualTimer> timer = make_ref<ManualTimer>();
  const Ref<WaitWatch> watch = make_ref<WaitWatch>(timer, 30);
  const Ref<Noted> first = make_ref<Noted>(), second = make_ref<Noted>(), quick = make_ref<Noted>();
  const uint64_t one = watch->begin(first);
  watch->end(watch->begin(quick));
  timer->advance(10 * kMilli);
  const uint64_t two = watch->begin(second);
  timer->advance(300 * kMilli);
  EXPECT_EQ(first->told, (std::vector<int64_t>{30, 60, 120, 240}));
  EXPECT_EQ(second->told, (std::vector<int64_t>{30, 60, 120, 240}));
  EXPECT_TRUE(quick->told.empty());
  EXPECT_EQ(timer->scheduled(), 1u) << "one task for all";
  watch->end(one);
  watch->end(two);
  watch->end(two);  // twice is fine
  EXPECT_TRUE(first->unique()) << "it is held while it waits";
  timer->advance(1000 * kMilli);
  EXPECT_EQ(first->told.size(), 4u);
  EXPECT_EQ(timer->scheduled(), 0u);
}

TEST(WaitWatch, TellsNobodyOnceStopped) {
  const Ref<ManualTimer> timer = make_ref<ManualTimer>();
  const Ref<WaitWatch> watch = make_ref<WaitWatch>(timer, 30);
  const Ref<Noted> noted = make_ref<Noted>();
  const uint64_t wait = watch->begin(noted);
  watch->stop();
  EXPECT_EQ(timer->scheduled(), 0u);
  EXPECT_TRUE(noted->unique());
  watch->end(wait);
  watch->end(watch->begin(noted));
  timer->advance(1000 * kMilli);
  EXPECT_TRUE(noted->told.empty());
}

TEST(WaitWatch, ZeroTellsNobody) {
  const Ref<ManualTimer> timer = make_ref<ManualTimer>();
  const Ref<WaitWatch> watch = make_ref<WaitWatch>(timer, 0);
  watch->end(watch->begin(make_ref<Noted>()));
  EXPECT_EQ(timer->scheduled(), 0u);
}

}  // namespace
}  // namespace millrace
