// Ranks of Open MPI that compute together. MpiRanks has mpirun start this program again, once for
// each rank, and these are then MpiRank: the tests that the task's own operations pass. Left out
// where there is no mpirun.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "millrace/base/env.h"
#include "millrace/base/file_testing.h"
#include "millrace/distributed/collective/collective_testing.h"
#include "millrace/distributed/collective/mpi/mpi_collectives.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using Merge = Collectives::Merge;
using Final = Collectives::Final;

int env_rank() { return static_cast<int>(env_int("OMPI_COMM_WORLD_RANK", -1, 0, 4096)); }
int env_size() { return static_cast<int>(env_int("OMPI_COMM_WORLD_SIZE", 0, 1, 4096)); }

// How the ranks of a run of MPI end, each with the tests of MpiRank.
int run_ranks(int ranks, const std::string& environment, std::string& log) {
  const TemporaryDirectory folder;
  const std::string path = folder / "log";
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof self);
  MR_CHECK(size > 0);
  // Open MPI's plug-ins leave much behind, and are unloaded when leaks are looked for.
  const std::string command = str_cat("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ",
                                      "ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 ", environment,
                                      " timeout 60 mpirun --oversubscribe -n ", ranks, " ",
                                      std::string_view(self, static_cast<size_t>(size)),
                                      " --gtest_filter='MpiRank.*' > ", path, " 2>&1");
  const int status = std::system(command.c_str());
  log = read_file(posix_file_system(), path).value();
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class MpiRanks : public testing::TestWithParam<std::pair<int, const char*>> {};

INSTANTIATE_TEST_SUITE_P(, MpiRanks,
                         testing::Values(std::pair(2, ""), std::pair(3, ""),
                                         std::pair(3, "MILLRACE_MPI_CHUNK_BYTES=24"),
                                         std::pair(5, "MILLRACE_MPI_CHUNK_BYTES=70000")));

TEST_P(MpiRanks, PassTheirTests) {
  if (env_rank() >= 0) GTEST_SKIP() << "this is a rank";
  if (std::system("command -v mpirun > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
  std::string log;
  EXPECT_EQ(run_ranks(GetParam().first, GetParam().second, log), 0) << log;
  EXPECT_NE(log.find("PASSED"), std::string::npos) << log;
}

template <class T>
Tensor filled(int64_t elements, double first, double step = 0) {
  Tensor out = Tensor::allocate(dtype_of<T>, Shape({elements})).value();
  for (int64_t i = 0; i < elements; ++i) {
    out.mutable_data<T>()[static_cast<size_t>(i)] =
        static_cast<T>(static_cast<float>(first + step * static_cast<double>(i % 7)));
  }
  return out;
}

// Members whose rank in the group is not that in MPI.
class MpiRank : public testing::Test {
 protected:
  void SetUp() override {
    if (env_rank() < 0) GTEST_SKIP() << "mpirun has not started this process";
    size_ = env_size();
    MpiWorld world;
    world.rank = env_rank();
    world.members.resize(static_cast<size_t>(size_));
    for (int i = 0; i < size_; ++i) {
      const int in_mpi = size_ - 1 - i;
      world.order.push_back(in_mpi);
      world.members[static_cast<size_t>(in_mpi)] = str_cat("rank ", i, " (task ", i, ")");
    }
    rank_ = size_ - 1 - world.rank;
    engine_ = MpiEngine::start(*MpiLibrary::get().value(), world);
    ASSERT_NE(engine_, nullptr);
  }

  Ref<PendingResult> submit(int64_t instance, MpiCall::Work work, int64_t timeout_ms = 0,
                            Ref<CancellationToken> cancel = nullptr, int64_t step = 0) {
    const Ref<PendingResult> result = make_ref<PendingResult>();
    const Ref<MpiCall> call = make_ref<MpiCall>(Collectives::Request{.op = "Op",
                                                                     .group_key = 1,
                                                                     .group_size = size_,
                                                                     .instance_key = instance,
                                                                     .step_id = step,
                                                                     .timeout_ms = timeout_ms,
                                                                     .cancel = std::move(cancel)},
                                                std::move(work), result->done());
    call->begin(real_timer(), watch_,
                [this](const MpiCall& asked) { return engine_->missing(asked); });
    engine_->submit(call);
    call->watch([this](const Ref<MpiCall>& left, const Status& reason) {
      engine_->leave(left, str_cat("rank ", rank_, " has left it: ", reason.message()));
    });
    return result;
  }
  static MpiCall::Work reduction(const Tensor& input, Merge merge = Merge::kAdd,
                                 Final final = Final::kId) {
    return {MpiCall::Kind::kReduce, input, input.dtype(), input.shape(), merge, final};
  }
  Ref<PendingResult> reduce(int64_t instance, const Tensor& input, Merge merge = Merge::kAdd,
                            Final final = Final::kId) {
    return submit(instance, reduction(input, merge, final));
  }
  Ref<PendingResult> gather(int64_t instance, const Tensor& input) {
    return submit(instance, {.kind = MpiCall::Kind::kGather,
                             .input = input,
                             .dtype = input.dtype(),
                             .shape = input.shape()});
  }
  Ref<PendingResult> broadcast(int64_t instance, const Tensor& value, bool sends) {
    return submit(instance, {.kind = MpiCall::Kind::kBroadcast,
                             .input = sends ? value : Tensor(),
                             .dtype = value.dtype(),
                             .shape = value.shape()});
  }
  static void expect(const Ref<PendingResult>& result, const Tensor& expected) {
    const Result<Tensor> got = result->wait();
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_TRUE(bit_equal(*got, expected)) << got->to_string() << ", not " << expected.to_string();
  }
  static void expect_failed(const Ref<PendingResult>& result, Code code, std::string_view text) {
    const Status status = result->wait().status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.message().find(text), std::string_view::npos) << status.to_string();
  }
  void expect_sum(int64_t instance) {
    expect(reduce(instance, filled<float>(3, rank_ + 1)),
           filled<float>(3, size_ * (size_ + 1) / 2.));
  }

  int rank_ = 0, size_ = 0;
  MpiEngine* engine_ = nullptr;
  const Ref<WaitWatch> watch_ = make_ref<WaitWatch>(real_timer(), 0);
};

TEST_F(MpiRank, ReducesEveryTypeByEveryMerge) {
  const auto check = [&]<class T>() {
    const bool first = rank_ == 0;
    double product = 1, sum = 0;
    for (int i = 1; i < size_; ++i) product *= i % 3 + 1;
    for (int i = 0; i < size_; ++i) sum += i;
    expect(reduce(1, filled<T>(10, rank_, first ? 1 : 0)), filled<T>(10, sum, 1));
    expect(reduce(1, filled<T>(10, first ? 2 : rank_ % 3 + 1, first ? 1 : 0), Merge::kMul),
           filled<T>(10, 2 * product, product));
    expect(reduce(1, filled<T>(2, 5 - rank_), Merge::kMin), filled<T>(2, 6 - size_));
    expect(reduce(1, filled<T>(2, rank_), Merge::kMax), filled<T>(2, size_ - 1));
    expect(reduce(1, filled<T>(2, 2 * rank_), Merge::kAdd, Final::kDiv), filled<T>(2, size_ - 1));
  };
  check.operator()<float>();
  check.operator()<double>();
  check.operator()<Half>();
  check.operator()<BFloat16>();
  check.operator()<int32_t>();
  check.operator()<int64_t>();
}

TEST_F(MpiRank, SizesAroundPieces) {
  const int64_t chunk = (1 << 20) / 8;
  double sum = size_ * (size_ + 1) / 2.;
  std::vector<int64_t> sizes = {0, 1, 2, 3, 7, 1000};
  if (env_string("MILLRACE_MPI_CHUNK_BYTES").empty()) {
    sizes.insert(sizes.end(), {chunk - 1, chunk, chunk + 1, 12 * chunk + 5});
  }
  for (const int64_t elements : sizes) {
    expect(reduce(1, filled<double>(elements, rank_ + 1, rank_)),
           filled<double>(elements, sum, sum - size_));
  }
}

TEST_F(MpiRank, NotANumberIsNeverLost) {
  Tensor input = filled<float>(size_, 1);
  input.mutable_data<float>()[static_cast<size_t>(rank_)] = std::numeric_limits<float>::quiet_NaN();
  for (const Merge merge : {Merge::kAdd, Merge::kMul, Merge::kMin, Merge::kMax}) {
    const Tensor got = reduce(1, input, merge)->wait().value();
    for (const float value : got.data<float>()) EXPECT_TRUE(std::isnan(value));
  }
}

// The same bits on all ranks: they gather what each has, and compare.
TEST_F(MpiRank, AllHaveTheSameBits) {
  std::minstd_rand random(static_cast<unsigned>(rank_) + 1);
  for (const int64_t elements : {5, 1000, 50'000}) {
    if (elements > 1000 && !env_string("MILLRACE_MPI_CHUNK_BYTES").empty()) continue;
    Tensor input = Tensor::allocate(DType::kFloat, Shape({elements})).value();
    for (float& value : input.mutable_data<float>()) {
      value =
          std::ldexp(static_cast<float>(random() % 1000) + 0.1F, static_cast<int>(random() % 9));
    }
    const Tensor sum = reduce(1, input)->wait().value();
    const Tensor all = gather(2, sum)->wait().value();
    for (int i = 0; i < size_; ++i) {
      EXPECT_EQ(std::memcmp(all.data<float>().data() + i * elements, sum.raw(), sum.bytes()), 0);
    }
  }
}

TEST_F(MpiRank, GathersRowsInTheOrderOfMembers) {
  // Numbers of rows that differ, none among them, more than a piece, and none at all.
  for (const int64_t most : {5, 100'000, 0}) {
    if (most > 5 && env_int("MILLRACE_MPI_CHUNK_BYTES", 1 << 20, 1, 1 << 20) < 100) continue;
    const auto rows = [&](int rank) { return most * rank / std::max(size_ - 1, 1); };
    int64_t all = 0, own = 0;
    for (int i = 0; i < size_; ++i) {
      if (i == rank_) own = all;
      all += rows(i);
    }
    Tensor input = Tensor::allocate(DType::kInt32, Shape({rows(rank_), 2})).value();
    for (size_t i = 0; i < input.data<int32_t>().size(); ++i) {
      input.mutable_data<int32_t>()[i] = static_cast<int32_t>(2 * own + static_cast<int64_t>(i));
    }
    const Tensor got = gather(1, input)->wait().value();
    ASSERT_EQ(got.shape(), Shape({all, 2}));
    for (size_t i = 0; i < got.data<int32_t>().size(); ++i) {
      ASSERT_EQ(got.data<int32_t>()[i], static_cast<int32_t>(i));
    }
  }
}

TEST_F(MpiRank, BroadcastsFromAnyRank) {
  for (int from = 0; from < size_; ++from) {
    for (const int64_t elements : {0, 5, 1001}) {
      const Tensor value = filled<float>(elements, from, 1);
      expect(broadcast(1, value, from == rank_), value);
    }
  }
  expect_failed(broadcast(1, filled<float>(2, 0), false), Code::kInvalidArgument,
                "expected one sender, got 0");
  expect_sum(2);
}

TEST_F(MpiRank, InstancesDoNotWaitForEachOther) {
  std::minstd_rand random(static_cast<unsigned>(rank_));
  constexpr int kInstances = 8;
  for (int round = 0; round < 20; ++round) {
    std::vector<int64_t> order;
    for (int k = 0; k < kInstances; ++k) order.push_back(k);
    std::shuffle(order.begin(), order.end(), random);
    std::map<int64_t, Ref<PendingResult>> results;
    for (const int64_t k : order) {
      results[k] = reduce(k, filled<int32_t>(4, rank_ + static_cast<double>(k)));
    }
    const int ranks = size_ * (size_ - 1) / 2;
    for (const auto& [k, result] : results) {
      EXPECT_EQ(result->wait().value().data<int32_t>()[3], ranks + size_ * k);
    }
  }
}

TEST_F(MpiRank, WhoDoesSomethingElseIsNamed) {
  expect_failed(reduce(7, filled<float>(rank_ == 1 ? 3 : 2, 0)), Code::kInvalidArgument,
                "rank 1 (task 1) has Add of float [3]");
  expect_sum(8);
  expect_failed(rank_ == 0 ? reduce(7, filled<float>(2, 0)) : gather(7, filled<float>(2, 0)),
                Code::kInvalidArgument, "rank 0 (task 0) has Add of float [2]");
  expect_sum(8);
}

TEST_F(MpiRank, CancellationsAndDeadlinesEndTheGroup) {
  expect_sum(1);
  if (rank_ == 0) {
    const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
    const Ref<PendingResult> one = submit(7, reduction(filled<float>(2, 0)), 0, cancel);
    const Ref<PendingResult> other = reduce(8, filled<float>(2, 0));
    cancel->cancel(cancelled("enough"));
    expect_failed(one, Code::kCancelled, "enough");
    // Ended together with the one that was cancelled, or as one that has begun after it.
    expect_failed(other, Code::kAborted, "rank 0 has left it: enough");
  } else {
    // What all had begun could not be ended any more.
    expect_failed(reduce(9, filled<float>(2, 0)), Code::kAborted, "rank 0 has left it: enough");
  }
  expect_sum(1);
  if (rank_ == 0) {
    expect_failed(submit(7, reduction(filled<float>(2, 0)), 20), Code::kDeadlineExceeded, "20 ms");
  } else {
    // Who was not there is told by its next call.
    expect_failed(reduce(9, filled<float>(2, 0)), Code::kAborted, "20 ms");
  }
  expect_sum(1);
}

TEST_F(MpiRank, AStepThatWasToldIsToldAgain) {
  if (rank_ == 0) {
    expect_failed(submit(7, reduction(filled<float>(2, 0)), 20), Code::kDeadlineExceeded, "20 ms");
  } else {
    for (int i = 0; i < 3; ++i) {
      expect_failed(submit(9, reduction(filled<float>(2, 0)), 0, nullptr, 5), Code::kAborted,
                    "20 ms");
    }
  }
  expect_sum(1);
}

}  // namespace
}  // namespace millrace
