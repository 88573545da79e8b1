#pragma once

#include <memory>
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

// Gives every node a device: SubNode::device is then of a full name. Obeys, in this order: what
// nodes ask for, colocation (attribute _class, reference and resource edges), the kernels there
// are, and then the cost of moving tensors: a node without a wish goes where most of its inputs
// are, sources to their consumers, Shape-like ops to their input. What might still be anywhere goes
// to the client's task. INVALID_ARGUMENT names the node, what it asked for and what there is.
Status place(Subgraph& graph, const DeviceSet& devices, const PlaceOptions& options);

// Fixes, for the session's life, the devices of nodes that have state, and of those that must be
// with them (colocation groups): their SubNode::device is then of a full name. All other nodes stay
// as they are; so does a group that cannot be placed: a request that needs it gets the error from
// place().
//
// One serves one graph, which grows at its end between the calls and changes in nothing else that
// placement looks at; a call costs in proportion to what was added.
class Pinner {
 public:
  // `devices` outlives it.
  Pinner(const DeviceSet& devices, const PlaceOptions& options);
  Pinner(Pinner&&) noexcept;
  Pinner& operator=(Pinner&&) noexcept;
  ~Pinner();

  // Pins the nodes from `first` on: those that came since the last call.
  void pin(Subgraph& graph, NodeId first);
  // How many nodes it has looked at so far, each time counted: for tests.
  int64_t work() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Moves control-flow nodes to where their data is, before partitioning: Switch and Exit to their
// input's device, Enter and NextIteration to their first consumer's.
void place_control_flow(Subgraph& graph);

}  // namespace millrace
