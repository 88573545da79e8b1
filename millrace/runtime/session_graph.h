#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/runtime/device_set.h"
#include "millrace/runtime/place.h"
#include "millrace/runtime/signature.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// A session's view of its graph: the client's nodes with calls of functions replaced by the function's
// nodes, and with stateful nodes pinned to devices for the session's life. Grows with the graph.
// Not thread-safe: the session serialises it.
class SessionGraph {
 public:
  SessionGraph(Ref<Graph> graph, PlaceOptions place_options, const DeviceSet& devices);

  // Takes the nodes added to the graph since the last time: freezes them, lowers calls, pins state. On
  // error nothing was taken. Inlining past ten million nodes is RESOURCE_EXHAUSTED.
  Status extend();

  // The part of the graph that `signature` needs. A feed becomes an _Arg node (attribute "index" = its
  // position in signature.feeds) that replaces every data edge out of the fed tensor; a fetch becomes a
  // _Retval likewise; both sit on the client device. Fed, fetched and target names are checked
  // (spec: NOT_FOUND, INVALID_ARGUMENT). A reached node of an unknown op is NOT_FOUND listing all of them.
  Result<Subgraph> prune(const Signature& signature) const;

  // For each fetch, the positions of the feeds it depends on: partial runs ask.
  std::vector<std::vector<int>> fetch_dependencies(const Subgraph& pruned, const Signature& s) const;

  // Where a stateful node was pinned; empty when the node is not pinned.
  std::string_view pinned_device(NodeId lowered) const;
  const Subgraph& lowered() const { return lowered_; }
  const Graph& graph() const { return *graph_; }

 private:
  Ref<Graph> graph_;
  PlaceOptions place_options_;
  const DeviceSet& devices_;
  int taken_ = 0;  // nodes of graph_ seen so far
  Subgraph lowered_;
  // For each client node: the lowered outputs that carry its outputs, and the node that stands for it in
  // control edges.
  std::vector<std::vector<Output>> outputs_;
  std::vector<NodeId> control_;
  std::vector<std::string> pinned_;
};

}  // namespace millrace
