#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>

#include "millrace/base/env.h"
#include "millrace/distributed/simulation/simulation_testing.h"

// MILLRACE_SIMULATED_SEEDS says how many seeds, MILLRACE_SIMULATED_FIRST_SEED the first of them: a
// seed that failed is run again by its number.

namespace millrace {
namespace {

using Bugs = SimulatedCluster::Bugs;

TEST(Simulation, SeedsAreClean) {
  const int64_t count = env_int("MILLRACE_SIMULATED_SEEDS", 500, 1, 1'000'000'000);
  const int64_t first = env_int("MILLRACE_SIMULATED_FIRST_SEED", 1, 0, INT64_MAX / 2);
  SimulationResult sum;
  for (int64_t seed = first; seed < first + count; ++seed) {
    const SimulationResult result = simulate(static_cast<uint64_t>(seed));
    ASSERT_EQ(result.failure, "") << "seed " << seed;
    sum.messages += result.messages;
    sum.runs += result.runs;
    sum.failed_runs += result.failed_runs;
    sum.crashes += result.crashes;
  }
  std::printf("%" PRId64 " seeds: %" PRId64 " messages, %d runs, %d of them failed, %d crashes\n",
              count, sum.messages, sum.runs, sum.failed_runs, sum.crashes);
}

TEST(Simulation, ASeedReplaysExactly) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    EXPECT_EQ(simulate(seed).digest, simulate(seed).digest) << "seed " << seed;
  }
}

// What the first seed says that finds a bug, which is clean without it. Empty: none of 1000 does.
std::string found(const Bugs& bugs) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    std::string failure = simulate(seed, bugs).failure;
    if (failure.empty()) continue;
    EXPECT_EQ(simulate(seed).failure, "") << "seed " << seed;
    return failure;
  }
  return "";
}

TEST(Simulation, FindsALostAbort) {
  const std::string failure = found({.lost_abort = true});
  EXPECT_TRUE(failure.starts_with("nobody is done in time")) << failure;
  // It names who waits, and for whom.
  EXPECT_NE(failure.find("the client on /job:worker/replica:0/task:0 runs"), std::string::npos);
  EXPECT_NE(failure.find("/millrace.Worker/RecvTensor from "), std::string::npos) << failure;
}

TEST(Simulation, FindsADoubledUpdate) {
  const std::string failure = found({.doubled_update = true});
  EXPECT_TRUE(failure.starts_with("update ")) << failure;
  EXPECT_NE(failure.find(" times"), std::string::npos) << failure;
}

TEST(Simulation, FindsAMissingDeadline) {
  const std::string failure = found({.missing_deadline = true});
  EXPECT_TRUE(failure.starts_with("nobody is done in time")) << failure;
}

}  // namespace
}  // namespace millrace
