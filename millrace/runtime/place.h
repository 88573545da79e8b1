#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/kernel/registry.h"
#include "millrace/runtime/device_set.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

struct PlaceOptions {
  const KernelRegistry* kernels = nullptr;  // null: the global one
  // Fall back to another device when the one asked for does not exist or has no kernel.
  bool soft = false;
  bool log = false;
};

// Gives every node a device: SubNode::device becomes a full name. Obeys, in this order: what is pinned,
// what nodes ask for, colocation (attribute _class, reference and resource edges), kernels there are, and
// then the cost of moving tensors: a node without a wish goes where most of its inputs are, sources to
// their consumers, Shape-like ops to their input. INVALID_ARGUMENT names the node, what it asked for
// and what there is.
//
// `pinned` (as long as the graph, or empty) gives devices that are fixed already; empty strings are free.
Status place(Subgraph& graph, const DeviceSet& devices, const PlaceOptions& options,
             std::span<const std::string> pinned = {});

// Moves control-flow nodes to where their data is, before partitioning: Switch and Exit to their input's
// device, Enter and NextIteration to their first consumer's.
void place_control_flow(Subgraph& graph);

}  // namespace millrace
