#pragma once

#include <cstdint>
#include <string>

#include "millrace/base/function.h"
#include "millrace/distributed/simulation/simulated_client_testing.h"
#include "millrace/distributed/simulation/simulated_cluster_testing.h"

// How whole runs of a simulated cluster are driven, whatever its clients do.

namespace millrace {

// When trouble ends, in simulated time.
inline constexpr int64_t kCalmAfterNs = 20'000'000'000;

struct SimulationResult {
  std::string failure;  // what did not hold, and who waits for what; empty: all did
  uint64_t digest = 0;  // the same for the same run
  int64_t messages = 0;
  int runs = 0, failed_runs = 0, crashes = 0;
  int lost_runs = 0;  // those that failed for another reason than a variable without a value
};

// Something went wrong that must not.
struct Verdict {
  std::string failure;
  void fail(std::string what) {
    if (failure.empty()) failure = std::move(what);
  }
};

// How often what goes wrong: by the kind modulo 6 nothing, each kind of trouble alone, or all.
SimulatedCluster::Chances chances_of_kind(uint64_t kind);

// Drives a cluster with one client on each of some tasks, those for which `make_client` makes one,
// until `over` or the verdict is a failure; then waits for leases to end, and looks at what is
// left. `in_haste`: clients do not wait for what processes before theirs have left.
SimulationResult drive(
    uint64_t seed, const SimulatedCluster::Bugs& bugs, const SimulatedCluster::Chances& chances,
    Verdict& verdict, FunctionRef<bool()> over,
    FunctionRef<Ref<SimulatedClient>(SimulatedCluster&, const Ref<SimulatedCluster::Process>&)>
        make_client,
    bool in_haste = false);

// Runs one seed after another until one fails: what it said, after its number; empty: none did.
// Prints what they came to. MILLRACE_SIMULATED_SEEDS says how many seeds, `count` where it does
// not; MILLRACE_SIMULATED_FIRST_SEED the first of them: a seed that failed is run again by its
// number.
std::string run_seeds(int64_t count, FunctionRef<SimulationResult(uint64_t seed)> simulate);

}  // namespace millrace
