// test-labels: threads
#include "millrace/distributed/task_counters.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "millrace/base/str_cat.h"

namespace millrace {
namespace {

using Bytes = std::map<std::string, std::pair<int64_t, int64_t>>;

Bytes bytes_of(const TaskCounters& counters) {
  WorkerActivity told;
  counters.tell(told);
  Bytes out;
  for (const WorkerActivity::Transfer& t : told.transfers) {
    out[str_cat(t.peer, " ", t.kind)] = {t.received_bytes, t.sent_bytes};
  }
  return out;
}

TEST(TaskCounters, BytesAreByPeerAndKind) {
  TaskCounters counters(
      {"/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1", "/job:ps/replica:0/task:10"});
  EXPECT_EQ(bytes_of(counters), Bytes());
  counters.with_device("/job:ps/replica:0/task:1/device:CPU:0").received(5);
  counters.with_task("/job:ps/replica:0/task:1").received(6);
  counters.with_device("/job:ps/replica:0/task:10/device:CPU:1").sent(7);
  counters.with_device("/job:worker/replica:0/task:0/device:CPU:1").sent(8);
  counters.with_device("?").received(9);
  counters.together_with("/job:ps/replica:0/task:1").sent(13);
  counters.together_with("").received(14);
  counters.feeds_received(10);
  counters.fetches_sent(11);
  counters.graph_received(12);
  EXPECT_EQ(bytes_of(counters), (Bytes{{"/job:ps/replica:0/task:1 tensor", {11, 0}},
                                       {"/job:ps/replica:0/task:10 tensor", {0, 7}},
                                       {"/job:ps/replica:0/task:1 collective", {0, 13}},
                                       {"other tensor", {9, 8}},
                                       {"other collective", {14, 0}},
                                       {"master feed", {10, 0}},
                                       {"master fetch", {0, 11}},
                                       {"master graph", {12, 0}}}));
}

TEST(TaskCounters, NothingIsLostBetweenThreads) {
  TaskCounters counters({"/job:ps/replica:0/task:0"});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        counters.step_begun();
        counters.with_task("/job:ps/replica:0/task:0").received(3);
        counters.step_ended(/*failed=*/i % 10 == 0);
        WorkerActivity told;
        if (i % 100 == 0) counters.tell(told);
        EXPECT_LE(told.steps_ended, told.steps_begun);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  WorkerActivity told;
  counters.tell(told);
  EXPECT_EQ(told.steps_begun, 4000);
  EXPECT_EQ(told.steps_ended, 4000);
  EXPECT_EQ(told.steps_failed, 400);
  EXPECT_EQ(told.transfers.at(0).received_bytes, 12'000);
}

}  // namespace
}  // namespace millrace
