#pragma once

#include <span>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/graph/graph.h"

namespace millrace {

// The nodes that `roots` need through data edges, these included, producers first. Numbers alone
// are no such order: widened nodes have inputs made after them. Back edges of loops do not count.
std::vector<NodeId> forward_order(const Graph& graph, std::span<const NodeId> roots);
// Those among them that are reached through inputs that are to be followed.
std::vector<NodeId> forward_order(const Graph& graph, std::span<const NodeId> roots,
                                  FunctionRef<bool(Output)> follows);

}  // namespace millrace
