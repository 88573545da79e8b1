// test-labels: threads
#include "millrace/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace millrace {
namespace {

struct Shared {
  Mutex mutex;
  CondVar changed;
  int value MR_GUARDED_BY(mutex) = 0;
};

TEST(Mutex, KeepsThreadsApart) {
  Shared shared;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        MutexLock lock(shared.mutex);
        ++shared.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(shared.mutex);
  EXPECT_EQ(shared.value, 4000);
}

TEST(Mutex, TryLockFailsWhileHeld) {
  Mutex mutex;
  MutexLock lock(mutex);
  std::thread([&] {
    const bool got = mutex.try_lock();
    EXPECT_FALSE(got);
    if (got) mutex.unlock();
  }).join();
  lock.unlock();
  std::thread([&] {
    const bool got = mutex.try_lock();
    EXPECT_TRUE(got);
    if (got) mutex.unlock();
  }).join();
  lock.lock();
}

TEST(CondVar, PassesWordBothWays) {
  Shared shared;
  std::thread other([&] {
    MutexLock lock(shared.mutex);
    while (shared.value != 1) shared.changed.wait(shared.mutex);
    shared.value = 2;
    shared.changed.notify_all();
  });
  {
    MutexLock lock(shared.mutex);
    shared.value = 1;
    shared.changed.notify_all();
    while (shared.value != 2) ASSERT_TRUE(shared.changed.wait_until(shared.mutex, Deadline()));
  }
  other.join();
}

TEST(CondVar, WaitEndsAtTheDeadline) {
  Shared shared;
  const Deadline deadline = Deadline::after_millis(5);
  MutexLock lock(shared.mutex);
  while (shared.changed.wait_until(shared.mutex, deadline)) {
  }
  EXPECT_TRUE(deadline.expired());
}

}  // namespace
}  // namespace millrace
