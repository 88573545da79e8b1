// test-labels: threads
// Members of a group on tasks of one process, over function calls, shared memory and gRPC.

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "millrace/base/log_testing.h"
#include "millrace/distributed/collective/collective_testing.h"
#include "millrace/distributed/collective/exchange.h"
#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/distributed/patience.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using Merge = Collectives::Merge;
using Final = Collectives::Final;
using Hint = Collectives::Hint;
using Transport = InProcessCluster::Transport;
using Results = std::vector<Ref<PendingResult>>;

template <class T>
Tensor filled(int64_t elements, double first, double step = 0) {
  Tensor out = Tensor::allocate(dtype_of<T>, Shape({elements})).value();
  for (int64_t i = 0; i < elements; ++i) {
    out.mutable_data<T>()[static_cast<size_t>(i)] =
        static_cast<T>(static_cast<float>(first + step * static_cast<double>(i % 7)));
  }
  return out;
}

class CollectiveTest : public testing::TestWithParam<Transport> {
 protected:
  void SetUp() override {
    if (GetParam() != Transport::kGrpc) return;
    if (const Status status = grpc_available(); !status.ok()) GTEST_SKIP() << status.to_string();
  }

  CollectiveCluster make(int members) { return CollectiveCluster(GetParam(), members); }

  // Every result is this one, to the bit.
  static void expect_all(const Results& results, const Tensor& expected) {
    for (size_t i = 0; i < results.size(); ++i) {
      const Result<Tensor> got = results[i]->wait();
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      EXPECT_TRUE(bit_equal(*got, expected))
          << "rank " << i << ": " << got->to_string() << ", expected " << expected.to_string();
    }
  }
  static void expect_failed(const Results& results, Code code, std::string_view text) {
    for (size_t i = 0; i < results.size(); ++i) {
      const Status status = results[i]->wait().status();
      EXPECT_EQ(status.code(), code) << "rank " << i << ": " << status.to_string();
      EXPECT_NE(status.message().find(text), std::string_view::npos) << status.to_string();
    }
  }
  // The group works.
  static void expect_sum(CollectiveCluster& members, int64_t instance) {
    Results results;
    double sum = 0;
    for (int i = 0; i < members.size(); ++i, sum += i) {
      results.push_back(members.reduce(i, instance, filled<float>(3, i + 1)));
    }
    expect_all(results, filled<float>(3, sum));
  }
};

INSTANTIATE_TEST_SUITE_P(, CollectiveTest,
                         testing::Values(Transport::kDirect, Transport::kSameHost,
                                         Transport::kGrpc),
                         [](const auto& info) {
                           return info.param == Transport::kDirect     ? "Direct"
                                  : info.param == Transport::kSameHost ? "SameHost"
                                                                       : "Grpc";
                         });

TEST_P(CollectiveTest, ReducesEveryTypeByEveryMerge) {
  CollectiveCluster members = make(3);
  int64_t instance = 0;
  const auto check = [&]<class T>() {
    const auto all = [&](Merge merge, Final final, double expected, double step) {
      ++instance;
      Results results;
      for (int i = 0; i < 3; ++i) {
        results.push_back(
            members.reduce(i, instance, filled<T>(10, i + 2, i == 0 ? 1 : 0), merge, final));
      }
      expect_all(results, filled<T>(10, expected, step));
    };
    all(Merge::kAdd, Final::kId, 9, 1);
    all(Merge::kMul, Final::kId, 24, 12);
    // 2, 3, ..., 8 with 3 and 4.
    Results lows, highs, means;
    ++instance;
    for (int i = 0; i < 3; ++i) {
      lows.push_back(members.reduce(i, instance, filled<T>(2, 5 - i), Merge::kMin));
      highs.push_back(members.reduce(i, 1000 + instance, filled<T>(2, i), Merge::kMax));
      means.push_back(
          members.reduce(i, 2000 + instance, filled<T>(2, 3 * i), Merge::kAdd, Final::kDiv));
    }
    expect_all(lows, filled<T>(2, 3));
    expect_all(highs, filled<T>(2, 2));
    expect_all(means, filled<T>(2, 3));
  };
  check.operator()<float>();
  check.operator()<double>();
  check.operator()<Half>();
  check.operator()<BFloat16>();
  check.operator()<int32_t>();
  check.operator()<int64_t>();
}

TEST_P(CollectiveTest, SizesAroundChunksInGroupsOfOneToFive) {
  const int64_t chunk = chunk_elements(DType::kDouble);
  for (int n = 1; n <= 5; ++n) {
    CollectiveCluster members = make(n);
    int64_t instance = 0;
    for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{n - 1}, int64_t{n + 1},
                                   chunk - 1, chunk, chunk * n + 1}) {
      for (const Hint hint : {Hint::kAuto, Hint::kRing, Hint::kTree}) {
        if (elements > chunk + 1 && hint == Hint::kRing) continue;  // as kAuto
        ++instance;
        Results results;
        double sum = 0;
        for (int i = 0; i < n; ++i) {
          Collectives::Request request = members.request(i, instance);
          request.hint = hint;
          results.push_back(members.reduce(request, filled<double>(elements, i + 1, i)));
          sum += i + 1;
        }
        expect_all(results, filled<double>(elements, sum, sum - n));
      }
    }
  }
}

TEST_P(CollectiveTest, GathersRowsInTheOrderOfRanks) {
  CollectiveCluster members = make(3);
  // Numbers of rows that differ, none among them, and more than a chunk.
  const int64_t rows[] = {2, 0, (int64_t{1} << 18) + 3};
  Results results;
  Tensor expected = Tensor::allocate(DType::kInt32, Shape({rows[0] + rows[2], 2})).value();
  size_t at = 0;
  for (int i = 0; i < 3; ++i) {
    Tensor own = Tensor::allocate(DType::kInt32, Shape({rows[i], 2})).value();
    for (int32_t& value : own.mutable_data<int32_t>()) {
      value = static_cast<int32_t>(at);
      expected.mutable_data<int32_t>()[at++] = value;
    }
    results.push_back(members.gather(i, 7, own));
  }
  expect_all(results, expected);
  EXPECT_EQ(members.gather(0, 8, Tensor::scalar(1.0F))->wait().status().code(),
            Code::kInvalidArgument);
}

TEST_P(CollectiveTest, BroadcastsFromAnyRank) {
  CollectiveCluster members = make(4);
  for (int from = 0; from < 4; ++from) {
    for (const int64_t elements : {int64_t{0}, int64_t{5}, chunk_elements(DType::kFloat) + 1}) {
      const int64_t instance = from * 10'000'000 + elements;
      const Tensor value = filled<float>(elements, from, 1);
      Results results;
      for (int i = 0; i < 4; ++i) {
        results.push_back(i == from ? members.send(i, instance, value)
                                    : members.recv(i, instance, DType::kFloat, value.shape()));
      }
      expect_all(results, value);
    }
  }
}

TEST_P(CollectiveTest, BroadcastsNeedOneSender) {
  CollectiveCluster members = make(2);
  expect_failed({members.recv(0, 1, DType::kFloat, {2}), members.recv(1, 1, DType::kFloat, {2})},
                Code::kInvalidArgument, "expected one sender, got 0");
  expect_failed({members.send(0, 1, filled<float>(2, 0)), members.send(1, 1, filled<float>(2, 0))},
                Code::kInvalidArgument, "expected one sender, got 2: rank 0 (/job:worker");
  expect_sum(members, 2);
}

// Members come in any order, with several instances at once, each in an order of its own.
TEST_P(CollectiveTest, InstancesDoNotWaitForEachOther) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  constexpr int kMembers = 3, kInstances = 8, kRounds = 20;
  CollectiveCluster members = make(kMembers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kMembers; ++i) {
    threads.emplace_back([&members, i, seed] {
      std::minstd_rand random(seed + static_cast<unsigned>(i));
      for (int round = 0; round < kRounds; ++round) {
        std::vector<int64_t> order(kInstances);
        for (int k = 0; k < kInstances; ++k) order[static_cast<size_t>(k)] = k;
        std::shuffle(order.begin(), order.end(), random);
        std::map<int64_t, Ref<PendingResult>> results;
        for (const int64_t k : order) {
          results[k] = members.reduce(i, k, filled<int32_t>(4, i + round + static_cast<double>(k)));
        }
        for (const auto& [k, result] : results) {
          const Result<Tensor> got = result->wait();
          ASSERT_TRUE(got.ok()) << got.status().to_string();
          EXPECT_EQ(got->data<int32_t>()[3], 3 * (round + k) + 3);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Sums in an order that follows from the ranks: as often as one likes, the same bits.
TEST_P(CollectiveTest, BitsDoNotDependOnTheOrderOfArrival) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  CollectiveCluster members = make(4);
  std::vector<Tensor> inputs;
  for (int i = 0; i < 4; ++i) {
    Tensor input = Tensor::allocate(DType::kFloat, Shape({1000})).value();
    for (float& value : input.mutable_data<float>()) {
      value =
          std::ldexp(static_cast<float>(random() % 1000) + 0.1F, static_cast<int>(random() % 9));
    }
    inputs.push_back(input);
  }
  for (const Hint hint : {Hint::kRing, Hint::kTree}) {
    Tensor first;
    for (int round = 0; round < 10; ++round) {
      std::vector<int> order = {0, 1, 2, 3};
      std::shuffle(order.begin(), order.end(), random);
      Results results;
      for (const int i : order) {
        Collectives::Request request = members.request(i, static_cast<int64_t>(hint));
        request.hint = hint;
        results.push_back(members.reduce(request, inputs[static_cast<size_t>(i)]));
      }
      if (!first.valid()) first = results[0]->wait().value();
      expect_all(results, first);
    }
  }
}

TEST_P(CollectiveTest, WhoDoesSomethingElseIsNamed) {
  CollectiveCluster members = make(2);
  const std::string both[] = {"rank 0 (/job:worker/replica:0/task:0) has Add of float [2]",
                              "rank 1 (/job:worker/replica:0/task:1) has Add of float [3]"};
  for (const std::string& text : both) {
    expect_failed(
        {members.reduce(0, 7, filled<float>(2, 0)), members.reduce(1, 7, filled<float>(3, 0))},
        Code::kInvalidArgument, text);
  }
  expect_failed(
      {members.reduce(0, 7, filled<float>(2, 0)), members.reduce(1, 7, filled<double>(2, 0))},
      Code::kInvalidArgument, "members do not agree");
  expect_failed({members.reduce(0, 7, filled<float>(2, 0)),
                 members.reduce(1, 7, filled<float>(2, 0), Merge::kMax)},
                Code::kInvalidArgument, "has Max of float [2]");
  expect_failed(
      {members.reduce(0, 7, filled<float>(2, 0)), members.gather(1, 7, filled<float>(2, 0))},
      Code::kInvalidArgument, "has rows of float [?]");
  expect_sum(members, 7);  // and then it works
}

TEST_P(CollectiveTest, WhoGivesAnotherSizeIsNamed) {
  CollectiveCluster members = make(2);
  Collectives::Request three = members.request(1, 7);
  three.group_size = 3;
  expect_failed(
      {members.reduce(0, 7, filled<float>(2, 0)), members.reduce(three, filled<float>(2, 0))},
      Code::kInvalidArgument,
      "/job:worker/replica:0/task:0 says 2, /job:worker/replica:0/task:1 says 3");
  expect_sum(members, 7);
}

TEST_P(CollectiveTest, AnyLossEndsAllAndTheGroupFormsAnew) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  CollectiveCluster members = make(3);
  expect_sum(members, 1);
  for (int victim = 0; victim < 3; ++victim) {
    // Anywhere between the first word and the last of a sum of some chunks.
    Results results;
    for (int i = 0; i < 3; ++i) {
      if (i != victim || random() % 2 == 0) {
        results.push_back(members.reduce(i, 1, filled<float>(3 << 18, i)));
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    members.stop(victim);
    for (size_t i = 0; i < results.size(); ++i) {
      const Status status = results[i]->wait().status();
      EXPECT_TRUE(status.ok() || status.code() == Code::kAborted ||
                  status.code() == Code::kUnavailable)
          << status.to_string();
    }
    members.restart(victim);
    // Who was not told yet is told by its next call; then all go on together.
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&members, i] {
        for (Result<Tensor> got = unknown("none yet"); !got.ok();) {
          got = members.reduce(i, 2, filled<float>(3, 1))->wait();
          if (got.ok()) {
            EXPECT_EQ(got->data<float>()[0], 3);
          } else {
            EXPECT_EQ(got.status().code(), Code::kAborted) << got.status().to_string();
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(CollectiveTest, ALossNamesRankAndTask) {
  CollectiveCluster members = make(3);
  expect_sum(members, 1);
  const Results results = {members.reduce(0, 7, filled<float>(2, 0)),
                           members.reduce(1, 7, filled<float>(2, 0))};
  members.stop(2);
  expect_failed(results, Code::kAborted, "rank 2 (/job:worker/replica:0/task:2)");
  expect_failed(results, Code::kAborted, "instance 7 of group 1");
}

TEST_P(CollectiveTest, WhoWasNotThereIsToldByItsNextCall) {
  CollectiveCluster members = make(2);
  expect_sum(members, 1);
  members.restart(1);
  // Nobody waited: rank 0 learns it now, and goes on with the next call.
  const Ref<PendingResult> first = members.reduce(1, 1, filled<float>(3, 1));
  expect_failed({members.reduce(0, 1, filled<float>(3, 1))}, Code::kAborted, "group 1");
  expect_all({members.reduce(0, 1, filled<float>(3, 1)), first}, filled<float>(3, 2));
}

TEST_P(CollectiveTest, AStepThatWasToldIsToldAgain) {
  CollectiveCluster members = make(2);
  expect_sum(members, 1);
  members.restart(1);
  const Ref<PendingResult> first = members.reduce(1, 1, filled<float>(3, 1));
  Collectives::Request request = members.request(0, 1);
  for (const int64_t instance : {1, 2, 3}) {  // of one step: none of them forms the group anew
    request.step_id = 7;
    request.instance_key = instance;
    expect_failed({members.reduce(request, filled<float>(3, 1))}, Code::kAborted, "group 1");
  }
  request.step_id = 8;
  request.instance_key = 1;
  expect_all({members.reduce(request, filled<float>(3, 1)), first}, filled<float>(3, 2));
}

TEST_P(CollectiveTest, CancellationsAndDeadlinesEndTheGroup) {
  CollectiveCluster members = make(2);
  expect_sum(members, 1);
  Collectives::Request request = members.request(0, 7);
  request.cancel = make_ref<CancellationToken>();
  const Ref<PendingResult> cancelled_one = members.reduce(request, filled<float>(2, 0));
  const Ref<PendingResult> other = members.reduce(0, 8, filled<float>(2, 0));
  request.cancel->cancel(cancelled("enough"));
  expect_failed({cancelled_one}, Code::kCancelled, "enough");
  expect_failed({other, members.reduce(1, 7, filled<float>(2, 0))}, Code::kAborted,
                "CollectiveReduce instance 7 of group 1: /job:worker/replica:0/task:0 has left it: "
                "enough");
  expect_sum(members, 1);
  Collectives::Request late = members.request(0, 7);
  late.timeout_ms = 20;
  expect_failed({members.reduce(late, filled<float>(2, 0))}, Code::kDeadlineExceeded,
                "instance 7 of group 1: waits for rank 1 (/job:worker/replica:0/task:1)");
  expect_failed({members.reduce(1, 7, filled<float>(2, 0))}, Code::kAborted, "20 ms");
  expect_sum(members, 1);
}

TEST_P(CollectiveTest, ACallThatWasCancelledBeforeEndsAtOnce) {
  CollectiveCluster members = make(2);
  for (int round = 0; round < 2; ++round) {  // while the group forms, and in it
    Collectives::Request request = members.request(0, 7);
    request.cancel = make_ref<CancellationToken>();
    request.cancel->cancel(cancelled("enough"));
    expect_failed({members.reduce(request, filled<float>(2, 0))}, Code::kCancelled, "enough");
    if (round == 0) expect_sum(members, 1);
  }
  expect_failed({members.reduce(1, 7, filled<float>(2, 0))}, Code::kAborted, "has left it: enough");
  expect_sum(members, 1);
}

TEST_P(CollectiveTest, WaitsForMembersUntilTheDeadline) {
  CollectiveCluster members = make(3);
  Collectives::Request late = members.request(1, 7);
  // A machine that is busy may need longer to tell the leader than to let the time pass.
  Status status;
  for (late.timeout_ms = 20; late.timeout_ms < 10'000; late.timeout_ms *= 2) {
    status = members.reduce(late, filled<float>(2, 0))->wait().status();
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
    if (status.message().find("have come") != std::string_view::npos) break;
  }
  EXPECT_NE(status.message().find("1 of 3 members have come: /job:worker/replica:0/task:1"),
            std::string_view::npos)
      << status.to_string();
  Collectives::Request early = members.request(1, 7);
  early.cancel = make_ref<CancellationToken>();
  const Ref<PendingResult> given_up = members.reduce(early, filled<float>(2, 0));
  early.cancel->cancel(cancelled("enough"));
  expect_failed({given_up}, Code::kCancelled, "enough");
  expect_sum(members, 7);
}

TEST_P(CollectiveTest, SmallerGroupsGoOnAfterAWhile) {
  const Ref<ManualTimer> timer = make_ref<ManualTimer>();
  // Over function calls alone: elsewhere this time passes faster than messages do.
  CollectiveCluster members(Transport::kDirect, 3, timer);
  const auto mean = [&](int member) {
    Collectives::Request request = members.request(member, 7);
    request.min_size = 2;
    return members.reduce(request, filled<float>(2, 2 * member), Merge::kAdd, Final::kDiv);
  };
  Results two = {mean(0), mean(1)};
  while (!two[0]->ready() || !two[1]->ready()) {
    std::this_thread::yield();
    timer->advance(lost_after_ms() * 1'000'000);
  }
  expect_all(two, filled<float>(2, 1));
  // Who comes late ends the group for those that went on; then there are three.
  const Ref<PendingResult> late = mean(2);
  for (int i = 0; i < 2; ++i) {
    two[static_cast<size_t>(i)] = mean(i);
    expect_failed({two[static_cast<size_t>(i)]}, Code::kAborted, "/job:worker/replica:0/task:2");
  }
  expect_all({mean(0), mean(1), late}, filled<float>(2, 2));
}

// What is scheduled holds the task.
TEST(CollectiveTimers, ATaskThatHasEndedHasNothingScheduled) {
  const Ref<ManualTimer> timer = make_ref<ManualTimer>();
  {
    CollectiveCluster members(Transport::kDirect, 2, timer);
    members.stop(0);  // who leads, and is asked again and again
    const size_t before = timer->scheduled();
    const Ref<PendingResult> waits = members.reduce(1, 7, filled<float>(2, 1));
    EXPECT_FALSE(waits->ready());
    EXPECT_GT(timer->scheduled(), before);
    members.stop(1);
    EXPECT_FALSE(waits->wait().ok());
  }
  EXPECT_EQ(timer->scheduled(), 0u);
}

TEST(CollectiveTimers, WhoWaitsForLongIsReportedUnasked) {
  const Ref<ManualTimer> timer = make_ref<ManualTimer>();
  CollectiveCluster members(Transport::kDirect, 2, timer);
  const Ref<PendingResult> waits = members.reduce(1, 7, filled<float>(2, 1));
  KeptLog log;
  timer->advance((report_after_ms() - 1) * 1'000'000);
  EXPECT_EQ(log.take(), "");
  timer->advance(1'000'000);
  EXPECT_EQ(log.take(),
            str_cat("CollectiveReduce instance 7 of group 1: waits for the group to form on ",
                    CollectiveCluster::task(0), ", since ", report_after_ms() / 1000, " s"));
  EXPECT_FALSE(waits->ready());
  members.stop(1);
  EXPECT_FALSE(waits->wait().ok());
}

TEST_P(CollectiveTest, CountsItsBytes) {
  CollectiveCluster members = make(2);
  expect_sum(members, 7);
  const auto bytes = [&](int member) {
    const Ref<Worker> worker = members.cluster().worker(CollectiveCluster::task(member)).value();
    std::pair<int64_t, int64_t> out;
    for (const WorkerActivity::Transfer& row : worker->activity(0).transfers) {
      if (row.kind != "collective") continue;
      out.first += row.received_bytes;
      out.second += row.sent_bytes;
    }
    return out;
  };
  const auto first = bytes(0), second = bytes(1);
  EXPECT_GT(first.first, 0);
  EXPECT_GT(first.second, 0);
  EXPECT_EQ(first.first, second.second);
  EXPECT_EQ(first.second, second.first);
}

TEST_P(CollectiveTest, SaysWhatItWaitsFor) {
  CollectiveCluster members = make(2);
  const auto steps = [&] {
    std::string out;
    for (const auto& [step, wait] :
         members.cluster().worker(CollectiveCluster::task(0)).value()->collectives()->waits()) {
      out += wait + "\n";
    }
    return out;
  };
  const Ref<PendingResult> first = members.reduce(0, 7, filled<float>(2, 1));
  EXPECT_NE(steps().find("CollectiveReduce instance 7 of group 1: waits for the group to form on "
                         "/job:worker/replica:0/task:0"),
            std::string::npos)
      << steps();
  EXPECT_NE(steps().find("group 1: 1 of 2 members have come"), std::string::npos) << steps();
  expect_all({first, members.reduce(1, 7, filled<float>(2, 1))}, filled<float>(2, 2));
  EXPECT_EQ(steps(), "");
  const Ref<PendingResult> second = members.reduce(0, 8, filled<float>(2, 1));
  EXPECT_NE(steps().find("CollectiveReduce instance 8 of group 1: waits for rank 1 "
                         "(/job:worker/replica:0/task:1)"),
            std::string::npos)
      << steps();
  expect_all({second, members.reduce(1, 8, filled<float>(2, 1))}, filled<float>(2, 2));
}

TEST_P(CollectiveTest, MembersOfOneTask) {
  CollectiveCluster members = make(1);
  Collectives::Request a = members.request(0, 1), b = a;
  a.group_size = b.group_size = 2;
  b.device = CollectiveCluster::task(0) + "/device:CPU:1";
  expect_all({members.reduce(a, filled<float>(2, 1)), members.reduce(b, filled<float>(2, 2))},
             filled<float>(2, 3));
}

// Strangers' requests: ranks, epochs and sizes are checked before they are used.
TEST_P(CollectiveTest, RefusesWhatCannotBe) {
  CollectiveCluster members = make(2);
  expect_sum(members, 1);
  const Ref<Worker> worker = members.cluster().worker(CollectiveCluster::task(0)).value();
  const auto asked = [&](const RecvChunkRequest& request) {
    const Ref<PendingResult> result = make_ref<PendingResult>();
    worker->recv_chunk(request, nullptr, result->done());
    return result->wait().status().code();
  };
  const std::string member = CollectiveCluster::task(0) + "/device:CPU:0";
  EXPECT_EQ(asked({.group_key = 5, .epoch = 1, .member = member}), Code::kAborted);
  EXPECT_EQ(asked({.group_key = 1, .epoch = 1, .member = member}), Code::kAborted);
  Status joined;
  const auto join = [&](JoinGroupRequest request) {
    worker->join_group(std::move(request), nullptr,
                       [&](Result<GroupView> view) { joined = view.status(); });
    return joined.code();
  };
  EXPECT_EQ(join({.group_key = 9, .group_size = 0, .member = member}), Code::kInvalidArgument);
  EXPECT_EQ(join({.group_key = 9, .group_size = 1 << 20, .member = member}),
            Code::kInvalidArgument);
  EXPECT_EQ(join({.group_key = 9, .group_size = 2, .min_size = 3, .member = member}),
            Code::kInvalidArgument);
  EXPECT_EQ(join({.group_key = 9, .group_size = 2, .member = "me"}), Code::kInvalidArgument);
  members.cluster()
      .worker(CollectiveCluster::task(1))
      .value()
      ->join_group({.group_key = 9, .group_size = 2, .member = member}, nullptr,
                   [&](Result<GroupView> view) { joined = view.status(); });
  EXPECT_EQ(joined.code(), Code::kInvalidArgument);  // it does not lead
  expect_sum(members, 1);
}

}  // namespace
}  // namespace millrace
