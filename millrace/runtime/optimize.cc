#include "millrace/runtime/optimize.h"

#include "millrace/base/clock.h"
#include "millrace/base/log.h"

namespace millrace {
namespace {

constexpr int kMaxRounds = 10;

constexpr OptimizePass kPasses[] = {
    {"constant_folding", /*exact=*/true, fold_constants},
    {"common_subexpressions", /*exact=*/true, merge_common_subexpressions},
    {"identities", /*exact=*/true, remove_identities},
    {"real_identities", /*exact=*/false, remove_real_identities},
    {"dead_nodes", /*exact=*/true, remove_dead_nodes},
};

}  // namespace

std::span<const OptimizePass> optimize_passes() { return kPasses; }

Status optimize(Subgraph& graph, const OptimizeOptions& options) {
  if (options.level <= 0) return ok_status();
  OptimizeOptions left = options;
  const int64_t began = monotonic_nanos();
  for (int round = 0; round < kMaxRounds; ++round) {
    bool changed = false;
    for (const OptimizePass& pass : optimize_passes()) {
      if (!pass.exact && options.level < 2) continue;
      Result<bool> result = pass.run(graph, left);
      if (!result.ok()) {
        MR_LOG(kWarning, "optimisation ", pass.name, " stopped: ", result.status());
        continue;
      }
      changed |= *result;
    }
    // What was too slow to fold is not tried for as long again in every round.
    left.max_folding_ms = options.max_folding_ms - (monotonic_nanos() - began) / 1'000'000;
    if (!changed) break;
  }
  return ok_status();
}

}  // namespace millrace
