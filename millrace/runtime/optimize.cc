#include "millrace/runtime/optimize.h"

#include "millrace/base/log.h"

namespace millrace {
namespace {

constexpr int kMaxRounds = 10;

constexpr OptimizePass kPasses[] = {
    {"constant_folding", /*exact=*/true, fold_constants},
    {"common_subexpressions", /*exact=*/true, merge_common_subexpressions},
    {"dead_nodes", /*exact=*/true, remove_dead_nodes},
};

}  // namespace

std::span<const OptimizePass> optimize_passes() { return kPasses; }

Status optimize(Subgraph& graph, const OptimizeOptions& options) {
  if (options.level <= 0) return ok_status();
  for (int round = 0; round < kMaxRounds; ++round) {
    bool changed = false;
    for (const OptimizePass& pass : optimize_passes()) {
      if (!pass.exact && options.level < 2) continue;
      // The pass works on a copy: nodes share what is large.
      Subgraph attempt = graph;
      Result<bool> result = pass.run(attempt, options);
      if (!result.ok()) {
        MR_LOG(kWarning, "optimisation ", pass.name, " skipped: ", result.status());
        continue;
      }
      if (!*result) continue;
      graph = std::move(attempt);
      changed = true;
    }
    if (!changed) break;
  }
  return ok_status();
}

}  // namespace millrace
