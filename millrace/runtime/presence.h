#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "millrace/runtime/subgraph.h"

namespace millrace {

// When the values of a graph are there, alive: an id for each set of nodes that decide so. Two
// values with the same set are dead at the same times, and in a partial run wait for the same
// feeds.
class Presence {
 public:
  // `order`: of all nodes, producers first.
  Presence(const Subgraph& graph, std::span<const NodeId> order);
  // Of the outputs of a node that is not a Switch.
  int of(NodeId id) const { return of_[static_cast<size_t>(id)]; }
  // Whether a value of id `a` is there whenever one of id `b` is.
  bool covers(int a, int b) const;

 private:
  int find(const Subgraph& graph, NodeId id);
  int join(int a, int b);
  int intern(std::vector<int64_t> set);

  std::vector<int> of_;  // by node
  std::vector<std::vector<int64_t>> sets_;
  std::map<std::vector<int64_t>, int> ids_;
  std::map<std::pair<int, int>, int> joined_;
};

}  // namespace millrace
