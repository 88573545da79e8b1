#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/kernel/registry.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

class Device;

// On a node that was asked for as a target: passes keep it although nothing reads it.
inline constexpr std::string_view kTargetAttr = "_target";
// On a node that is computed in another layout than the program asks for: which, for readers.
inline constexpr std::string_view kLayoutAttr = "_layout";
// On a node whose filter does what others did: which, for readers.
inline constexpr std::string_view kInFilterAttr = "_in_filter";

struct OptimizeOptions {
  // 0: no passes; 1: the exact ones; 2: all.
  int level = 1;
  // Those that are last, too; without them the graph can be rewritten further.
  bool finish = true;
  // Names of passes that are left out, besides those that MILLRACE_DISABLE_PASSES lists.
  std::vector<std::string> disabled_passes;
  // Folded constants larger than this stay unfolded.
  int64_t max_constant_bytes = 10 << 20;
  // How long constants may be folded; what is not folded by then runs with the graph.
  int64_t max_folding_ms = 500;
  // The type in which nodes on devices of a kind compute what is float32 and does well with less:
  // kHalf or kBFloat16; kFloat: as they are.
  DType cpu_precision = DType::kFloat;
  DType gpu_precision = DType::kFloat;
  const KernelRegistry* kernels = nullptr;  // null: the global one
  // Runs the kernels that fold constants: a host device.
  Device* cpu = nullptr;
};

// A rewrite of a graph, in place. It goes from one graph that means the same to the next, so one
// that stops with an error has done no harm. Exact passes give bit-equal results; the others, the
// close ones, round differently, but as well, and are tested with a tolerance. Fed tensors are
// opaque _Arg nodes; what _Retval nodes and stateful nodes need is kept; the names of nodes with
// state are kept.
struct OptimizePass {
  std::string_view name;
  bool exact = true;
  // True when it changed something.
  Result<bool> (*run)(Subgraph& graph, const OptimizeOptions& options);
  // Runs once, when the others find nothing more: it makes nodes that they could not see into.
  bool last = false;
};

// All passes, in the order they run.
std::span<const OptimizePass> optimize_passes();

// The passes that `names` and the environment's MILLRACE_DISABLE_PASSES ("a,b") switch off.
// INVALID_ARGUMENT, with the names there are, for one that no pass has.
Result<std::vector<std::string>> disabled_passes(std::span<const std::string> names);

// Runs the passes until nothing changes, at most ten rounds, then those that are last. A pass that
// fails is skipped.
// INVALID_ARGUMENT for a name in `options.disabled_passes` or the environment that no pass has.
Status optimize(Subgraph& graph, const OptimizeOptions& options);
// Those that are last alone, for a graph that optimize() left unfinished.
Status finish_optimizing(Subgraph& graph, const OptimizeOptions& options);

// The passes one by one, for tests.
// Puts constants where facts tell the elements: sizes of tensors of a known shape, and what is made
// of them. What was only computed for its size is not computed any more.
Result<bool> take_known_values(Subgraph& graph, const OptimizeOptions& options);
// Lets what has no effects go on with a value of a group before the others of the group are there.
Result<bool> open_gates(Subgraph& graph, const OptimizeOptions& options);
Result<bool> fold_constants(Subgraph& graph, const OptimizeOptions& options);
Result<bool> merge_common_subexpressions(Subgraph& graph, const OptimizeOptions& options);
Result<bool> remove_identities(Subgraph& graph, const OptimizeOptions& options);
// Of real numbers; not exact in that signalling NaNs stay so.
Result<bool> remove_real_identities(Subgraph& graph, const OptimizeOptions& options);
Result<bool> fuse_elementwise(Subgraph& graph, const OptimizeOptions& options);
// Rounds as the op does that takes its operand transposed.
Result<bool> fold_transposes(Subgraph& graph, const OptimizeOptions& options);
// Rounds as a filter does that is scaled by the product of what scaled its results.
Result<bool> fold_batch_norms(Subgraph& graph, const OptimizeOptions& options);
// Rounds as the op does that computes the sum: of products in one sum over all their factors.
Result<bool> sum_products_at_once(Subgraph& graph, const OptimizeOptions& options);
// Computes images with their channels last. Rounds as ops do that have them last: what sums over an
// image or a batch sums in another order.
Result<bool> lay_out_images(Subgraph& graph, const OptimizeOptions& options);
// Rounds as the ops do that compute nearly the same as others, faster, and take their places.
Result<bool> approximate(Subgraph& graph, const OptimizeOptions& options);
// Computes products, and what stands between them, in half or bfloat16 where the options ask for it
// (mixed_precision.h). Rounds as these types do.
Result<bool> lower_precision(Subgraph& graph, const OptimizeOptions& options);
// Runs before a loop what is the same in all of its iterations.
Result<bool> move_invariants_out(Subgraph& graph, const OptimizeOptions& options);
Result<bool> remove_dead_nodes(Subgraph& graph, const OptimizeOptions& options);

}  // namespace millrace
