// test-labels: threads

#include "millrace/eager/interruptible.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace millrace::eager {
namespace {

std::atomic<int> asked{0};
bool says_no() {
  ++asked;
  return false;
}
bool says_yes() { return true; }

TEST(Interruptible, HoldsForItsScopeAndThread) {
  EXPECT_EQ(Interruptible::here(), nullptr);
  {
    const Interruptible outer(says_yes);
    EXPECT_EQ(Interruptible::here(), says_yes);
    const Interruptible inner(nullptr);
    EXPECT_EQ(Interruptible::here(), nullptr);
    std::thread([] { EXPECT_EQ(Interruptible::here(), nullptr); }).join();
  }
  EXPECT_EQ(Interruptible::here(), nullptr);
}

TEST(Interruptible, StopsTheStepThatIsWaitedFor) {
  const Ref<Ending> ending = make_ref<Ending>();
  const Ref<Step> step = Step::make_shared(0);
  const Interruptible interruptible(says_yes);
  EXPECT_FALSE(ending->wait(*step));
  EXPECT_EQ(step->cancel->status().code(), Code::kCancelled);
}

TEST(Interruptible, AsksUntilTheEnd) {
  const Ref<Ending> ending = make_ref<Ending>();
  const Ref<Step> step = Step::make_shared(0);
  std::thread other([ending] {
    while (asked < 2) std::this_thread::yield();
    ending->over();
  });
  const Interruptible interruptible(says_no);
  EXPECT_TRUE(ending->wait(*step));
  EXPECT_FALSE(step->cancel->cancelled());
  other.join();
}

TEST(Interruptible, LoopsLookNowAndThen) {
  InterruptWatch watch;
  EXPECT_TRUE(watch.look().ok());
  const Interruptible interruptible(says_yes);
  Status status;
  while (status.ok()) status = watch.look();
  EXPECT_EQ(status.code(), Code::kCancelled);
}

}  // namespace
}  // namespace millrace::eager
