// test-labels: threads
#include "millrace/base/spare_thread.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using Task = UniqueFunction<void()>;

constexpr int64_t kForEver = INT64_MAX;

TEST(SpareThread, TakesNothingOutsideOfRun) {
  bool ran = false;
  Task task = [&] { ran = true; };
  EXPECT_FALSE(SpareThread::take(task));
  SpareThread::run([] {});
  EXPECT_FALSE(SpareThread::take(task));
  EXPECT_FALSE(ran);
  task();  // still the caller's
  EXPECT_TRUE(ran);
}

TEST(SpareThread, RunsWhatItTookAfterTheWorkInOrder) {
  std::vector<int> order;
  const auto take = [&](int number) {
    Task task = [&order, number] { order.push_back(number); };
    ASSERT_TRUE(SpareThread::take(task));
  };
  SpareThread::run(
      [&] {
        Task first = [&] {
          order.push_back(1);
          take(3);
          EXPECT_EQ(order.back(), 1);  // not from inside of another
        };
        ASSERT_TRUE(SpareThread::take(first));
        SpareThread::run([&] { take(2); });  // the outer one has it
        order.push_back(0);
      },
      kForEver);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(SpareThread, IsOneThreads) {
  SpareThread::run([] {
    std::thread([] {
      Task task = [] {};
      EXPECT_FALSE(SpareThread::take(task));
    }).join();
  });
}

TEST(SpareThread, LeavesToThePoolWhatComesTooLate) {
  const auto ran_on = std::make_shared<std::promise<std::thread::id>>();
  SpareThread::run(
      [&] {
        Task task = [ran_on] { ran_on->set_value(std::this_thread::get_id()); };
        ASSERT_TRUE(SpareThread::take(task));
      },
      0);
  EXPECT_NE(ran_on->get_future().get(), std::this_thread::get_id());
}

}  // namespace
}  // namespace millrace
