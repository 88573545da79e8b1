#include "millrace/runtime/optimize.h"

#include <algorithm>

#include "millrace/base/clock.h"
#include "millrace/base/env.h"
#include "millrace/base/log.h"
#include "millrace/base/str_cat.h"

namespace millrace {
namespace {

constexpr int kMaxRounds = 10;

constexpr OptimizePass kPasses[] = {
    {"gates", /*exact=*/true, open_gates},
    {"known_values", /*exact=*/true, take_known_values},
    {"constant_folding", /*exact=*/true, fold_constants},
    {"common_subexpressions", /*exact=*/true, merge_common_subexpressions},
    {"identities", /*exact=*/true, remove_identities},
    {"real_identities", /*exact=*/false, remove_real_identities},
    {"folded_transposes", /*exact=*/false, fold_transposes},
    {"folded_batch_norms", /*exact=*/false, fold_batch_norms},
    {"mixed_precision", /*exact=*/false, lower_precision},
    {"image_layout", /*exact=*/false, lay_out_images},
    {"sums_of_products", /*exact=*/false, sum_products_at_once},
    {"approximations", /*exact=*/false, approximate},
    {"loop_invariants", /*exact=*/true, move_invariants_out},
    {"dead_nodes", /*exact=*/true, remove_dead_nodes},
    {"fuse_elementwise", /*exact=*/true, fuse_elementwise, /*last=*/true},
};

// True when it changed something.
bool run_pass(const OptimizePass& pass, Subgraph& graph, const OptimizeOptions& options) {
  const Result<bool> result = pass.run(graph, options);
  if (result.ok()) return *result;
  MR_LOG(kWarning, "optimisation ", pass.name, " stopped: ", result.status());
  return false;
}

// The passes that run by these options.
Result<std::vector<const OptimizePass*>> chosen(const OptimizeOptions& options) {
  MR_TRY_ASSIGN(const std::vector<std::string> disabled, disabled_passes(options.disabled_passes));
  std::vector<const OptimizePass*> passes;
  for (const OptimizePass& pass : kPasses) {
    if (options.level < (pass.exact ? 1 : 2)) continue;
    if (std::ranges::find(disabled, pass.name) == disabled.end()) passes.push_back(&pass);
  }
  return passes;
}

}  // namespace

std::span<const OptimizePass> optimize_passes() { return kPasses; }

Result<std::vector<std::string>> disabled_passes(std::span<const std::string> names) {
  std::vector<std::string> disabled(names.begin(), names.end());
  std::string_view listed = env_string("MILLRACE_DISABLE_PASSES");
  while (!listed.empty()) {
    const size_t comma = std::min(listed.find(','), listed.size());
    if (comma > 0) disabled.emplace_back(listed.substr(0, comma));
    listed.remove_prefix(std::min(comma + 1, listed.size()));
  }
  for (const std::string& name : disabled) {
    if (std::ranges::find(optimize_passes(), name, &OptimizePass::name) != optimize_passes().end())
      continue;
    std::vector<std::string_view> known;
    for (const OptimizePass& pass : optimize_passes()) known.push_back(pass.name);
    return invalid_argument("there is no optimisation pass '", name, "' to disable; there are ",
                            str_join(known, ", "));
  }
  return disabled;
}

Status optimize(Subgraph& graph, const OptimizeOptions& options) {
  MR_TRY_ASSIGN(const std::vector<const OptimizePass*> passes, chosen(options));
  OptimizeOptions left = options;
  const int64_t began = monotonic_nanos();
  for (int round = 0; round < kMaxRounds; ++round) {
    bool changed = false;
    for (const OptimizePass* pass : passes) {
      if (!pass->last) changed |= run_pass(*pass, graph, left);
    }
    // What was too slow to fold is not tried for as long again in every round.
    left.max_folding_ms = options.max_folding_ms - (monotonic_nanos() - began) / 1'000'000;
    if (!changed) break;
  }
  return options.finish ? finish_optimizing(graph, options) : ok_status();
}

Status finish_optimizing(Subgraph& graph, const OptimizeOptions& options) {
  MR_TRY_ASSIGN(const std::vector<const OptimizePass*> passes, chosen(options));
  for (const OptimizePass* pass : passes) {
    if (pass->last) run_pass(*pass, graph, options);
  }
  return ok_status();
}

}  // namespace millrace
