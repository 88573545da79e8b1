#include <gtest/gtest.h>

#include "millrace/distributed/simulation/simulated_members_testing.h"

namespace millrace {
namespace {

TEST(SimulatedMembers, SeedsAreClean) {
  EXPECT_EQ(run_seeds(240, [](uint64_t seed) { return simulate_members(seed); }), "");
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
