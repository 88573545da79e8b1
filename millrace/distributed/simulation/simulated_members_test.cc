#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>

#include "millrace/base/env.h"
#include "millrace/distributed/simulation/simulated_members_testing.h"

// MILLRACE_SIMULATED_SEEDS and MILLRACE_SIMULATED_FIRST_SEED as in simulation_test.cc.

namespace millrace {
namespace {

TEST(SimulatedMembers, SeedsAreClean) {
  const int64_t count = env_int("MILLRACE_SIMULATED_SEEDS", 240, 1, 1'000'000'000);
  const int64_t first = env_int("MILLRACE_SIMULATED_FIRST_SEED", 1, 0, INT64_MAX / 2);
  SimulationResult sum;
  for (int64_t seed = first; seed < first + count; ++seed) {
    const SimulationResult result = simulate_members(static_cast<uint64_t>(seed));
    ASSERT_EQ(result.failure, "") << "seed " << seed;
    sum.messages += result.messages;
    sum.runs += result.runs;
    sum.failed_runs += result.failed_runs;
    sum.crashes += result.crashes;
  }
  std::printf("%" PRId64 " seeds: %" PRId64 " messages, %d calls, %d of them failed, %d crashes\n",
              count, sum.messages, sum.runs, sum.failed_runs, sum.crashes);
}

TEST(SimulatedMembers, ASeedReplaysExactly) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    EXPECT_EQ(simulate_members(seed).digest, simulate_members(seed).digest) << "seed " << seed;
  }
}

TEST(SimulatedMembers, FindsAMissingDeadline) {
  std::string failure;
  for (uint64_t seed = 1; seed <= 200 && failure.empty(); ++seed) {
    failure = simulate_members(seed, {.missing_deadline = true}).failure;
  }
  EXPECT_TRUE(failure.starts_with("nobody is done in time")) << failure;
}

}  // namespace
}  // namespace millrace
