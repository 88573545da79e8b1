#include <gtest/gtest.h>

#include "millrace/distributed/simulation/simulated_replicas_testing.h"

namespace millrace {
namespace {

TEST(SimulatedReplicas, SeedsAreClean) {
  EXPECT_EQ(run_seeds(500, [](uint64_t seed) { return simulate_replicas(seed); }), "");
}

TEST(SimulatedReplicas, ASeedReplaysExactly) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    EXPECT_EQ(simulate_replicas(seed).digest, simulate_replicas(seed).digest) << "seed " << seed;
  }
}

// What the first seed says that finds a bug, which is clean without it. Empty: none of 1000 does.
std::string found(const ReplicaBugs& bugs) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    std::string failure = simulate_replicas(seed, bugs).failure;
    if (failure.empty()) continue;
    EXPECT_EQ(simulate_replicas(seed).failure, "") << "seed " << seed;
    return failure;
  }
  return "";
}

// A step is applied once more on one of the servers.
TEST(SimulatedReplicas, FindsAStepThatIsTriedAgainWithoutItsId) {
  const std::string failure = found({.forgotten_step = true});
  EXPECT_NE(failure.find("the model is of"), std::string::npos) << failure;
}

// Gradients from before the model was set back count, or those who gave them wait for a step that
// has none of them any more.
TEST(SimulatedReplicas, FindsWorkersThatDoNotKnowOfEras) {
  const std::string failure = found({.nameless_era = true});
  EXPECT_TRUE(failure.find("the model is of") != std::string::npos ||
              failure.starts_with("nobody is done in time"))
      << failure;
}

TEST(SimulatedReplicas, FindsGradientsOfHalfAStep) {
  const std::string failure = found({.early_update = true});
  EXPECT_NE(failure.find("the model is of"), std::string::npos) << failure;
}

TEST(SimulatedReplicas, FindsACheckpointOfHalfAStep) {
  const std::string failure = found({.torn_save = true});
  EXPECT_NE(failure.find("the model is of"), std::string::npos) << failure;
}

TEST(SimulatedReplicas, FindsAMissingDeadline) {
  std::string failure;
  for (uint64_t seed = 1; seed <= 200 && failure.empty(); ++seed) {
    failure = simulate_replicas(seed, {}, {.missing_deadline = true}).failure;
  }
  EXPECT_TRUE(failure.starts_with("nobody is done in time")) << failure;
}

}  // namespace
}  // namespace millrace
