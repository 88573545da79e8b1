#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/runtime/device_set.h"
#include "millrace/runtime/lower.h"
#include "millrace/runtime/place.h"
#include "millrace/runtime/signature.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// A session's view of its graph: the client's nodes with functional ones replaced by the functions'
// nodes (lower.h), and with stateful nodes pinned to devices for the session's life. Grows with
// the graph. Not thread-safe: the session serialises it.
class SessionGraph {
 public:
  // `devices` outlives it.
  SessionGraph(Ref<Graph> graph, const DeviceSet& devices, PlaceOptions place_options);

  // Takes the nodes added to the graph since the last time: freezes them, replaces calls, pins
  // state. On error nothing was taken. More than ten million nodes after inlining are
  // RESOURCE_EXHAUSTED.
  Status extend();
  // True when the graph has nodes, or a widened node, that extend() has not taken.
  bool behind() const { return graph_->num_nodes() > taken_ || graph_->revision() != revision_; }

  // The part of the graph that `signature` needs, each pinned node asking for its device. A feed
  // becomes an _Arg node (attribute "index" = its position in signature.feeds) that replaces every
  // data edge out of the fed tensor; a fetch becomes a _Retval likewise; both sit on the client
  // device.
  //
  // NOT_FOUND for an unknown node and for a reached node of an unknown op (listing all);
  // INVALID_ARGUMENT for a bad output number, a tensor fed twice or both fed and fetched, a fetch
  // of a node without outputs, and a signature that asks for nothing.
  Result<Subgraph> prune(const Signature& signature) const;

  // True when no node that was taken may give a variable another shape than it has or, at first,
  // declares. An op that takes a reference and may do so has the attribute validate_shape, which is
  // false then.
  bool shapes_hold() const { return shapes_hold_; }

  const Subgraph& lowered() const { return lowered_; }
  const Graph& graph() const { return *graph_; }

 private:
  // By the names of nodes with state.
  using PinnedDevices = std::unordered_map<std::string, std::string>;
  // Takes nodes up to `count`; those in `pinned` go where they were.
  Status take(int count, const PinnedDevices& pinned);
  // As if nothing had been taken yet, up to `count` nodes.
  Status lower_anew(int count);

  Ref<Graph> graph_;
  const DeviceSet& devices_;
  PlaceOptions place_options_;
  int taken_ = 0;  // nodes of graph_ seen so far
  Subgraph lowered_;
  Pinner pinner_;                   // of lowered_
  std::vector<NodeId> lowered_of_;  // by client node
  LoweredOutputs lowered_outputs_;
  bool shapes_hold_ = true;
  int64_t revision_ = 0;  // of graph_ when it was last lowered
};

// For each fetch, the positions of the feeds that it depends on. `pruned` is what prune() gave.
std::vector<std::vector<int>> fetch_dependencies(const Subgraph& pruned,
                                                 const Signature& signature);

}  // namespace millrace
