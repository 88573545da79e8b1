#include <gtest/gtest.h>

#include "millrace/distributed/simulation/simulation_testing.h"

namespace millrace {
namespace {

using Bugs = SimulatedCluster::Bugs;

TEST(Simulation, SeedsAreClean) {
  EXPECT_EQ(run_seeds(500, [](uint64_t seed) { return simulate(seed); }), "");
}

// What a task does for who lost its connection is not lost, and not done twice.
TEST(Simulation, RunsSurviveTheLossOfConnections) {
  int runs = 0, lost = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SimulatedCluster::Chances chances;
    chances.reset = 0.02;
    const SimulationResult result = simulate(seed, {}, &chances);
    ASSERT_EQ(result.failure, "") << "seed " << seed;
    runs += result.runs;
    lost += result.lost_runs;
  }
  EXPECT_GT(runs, 1000);
  EXPECT_LE(lost, runs / 200);
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
  // Who should have been told waits on, and says for what.
  EXPECT_TRUE(failure.starts_with("nobody is done in time") ||
              failure.starts_with("something is left"))
      << failure;
  EXPECT_NE(failure.find(", which waits for /job:"), std::string::npos) << failure;
}

TEST(Simulation, FindsADoubledUpdate) {
  const std::string failure = found({.doubled_update = true});
  EXPECT_TRUE(failure.starts_with("update ")) << failure;
  EXPECT_NE(failure.find(" times"), std::string::npos) << failure;
}

TEST(Simulation, FindsAnUpdateThatIsTriedAgainByAnotherNumber) {
  const std::string failure = found({.renumbered_update = true});
  EXPECT_TRUE(failure.starts_with("update ")) << failure;
  EXPECT_NE(failure.find(" times"), std::string::npos) << failure;
}

TEST(Simulation, FindsAMissingDeadline) {
  const std::string failure = found({.missing_deadline = true});
  EXPECT_TRUE(failure.starts_with("nobody is done in time")) << failure;
}

}  // namespace
}  // namespace millrace
