#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "millrace/graph/graph_builder.h"

namespace millrace {

// Trading time for memory outside of loops and branches: the forward tensors that gradients use are
// not kept until then but computed again, from those that are kept (checkpoints), when the gradient
// gets to them.

using TensorSet = std::set<std::pair<NodeId, int32_t>>;

// The tensors between `xs` and `ys` to keep so that no more than about `budget` bytes of them are
// held at once; 0: as few as cost one more forward pass, about the square root of all. Sizes that
// are not known count as 1. Empty: all of them fit, nothing needs to be computed again.
TensorSet choose_checkpoints(const Graph& graph, std::span<const Output> ys,
                             std::span<const Output> xs, int64_t budget);

// Computes tensors of a graph again.
class Recomputation {
 public:
  // `kept`: tensors to take as they are. So are those of operations that cannot run twice, or for
  // nothing: with state, constants, feeds, branches and loops, and those behind the last of `kept`.
  Recomputation(GraphBuilder& builder, std::span<const Output> ys, TensorSet kept);

  // `o` itself where it is kept, else computed again once `after` has been.
  Expr view(Output o, NodeId after);

 private:
  bool is_kept(Output o) const;
  NodeId copy_of(NodeId id, NodeId after);

  GraphBuilder& builder_;
  TensorSet kept_;
  std::vector<bool> tail_;           // by node: no kept tensor is downstream
  std::map<NodeId, NodeId> copies_;  // made so far
};

}  // namespace millrace
