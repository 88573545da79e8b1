#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "millrace/runtime/subgraph.h"

namespace millrace {

// When the values of a graph are there, alive: an id for each set of nodes that decide so. Two
// values with the same set are dead at the same times, in a loop in the same iterations, and in a
// partial run wait for the same feeds. What both ways of a branch come together in is there when
// the branch is; the variables of a loop are there together where each follows from them alone.
class Presence {
 public:
  // `order`: of all nodes, producers first.
  Presence(const Subgraph& graph, std::span<const NodeId> order);
  // Of the outputs of a node that is not a Switch.
  int of(NodeId id) const { return of_[static_cast<size_t>(id)]; }
  // Whether a value of id `a` is there whenever one of id `b` is.
  bool covers(int a, int b) const;

 private:
  struct Loop {
    NodeId loop_cond = -1;
    std::vector<NodeId> enters, merges, nexts;  // of its variables
    bool together = true;                       // unless found otherwise
    int entered = -1;  // when what enters is there, all of it at once; -1: not known
  };

  void find_loops(const Subgraph& graph);
  // Producers first, and all that enters a loop before any of its variables. None where there are
  // no loops, or one hangs on its own outputs: then they are not together.
  std::vector<NodeId> find_order(const Subgraph& graph);
  // Whether every loop is what it was taken for; those that are not are known from now on.
  bool verify_loops();
  // The iterations of a loop that there are, and its end.
  int iterations(const Loop& loop) {
    return join(loop.entered, intern({int64_t{loop.loop_cond} * 2}));
  }
  int ends(const Loop& loop) { return intern({int64_t{loop.merges[0]} * 2}); }

  int find(const Subgraph& graph, NodeId id);
  int find_merge(const Subgraph& graph, const SubNode& merge, NodeId id);
  int of_output(const Subgraph& graph, Output output);
  // The way that a Switch sends to its output, when `predicate` says so.
  int64_t way(Output predicate, int32_t output, size_t ways);
  int join(int a, int b);
  int intern(std::vector<int64_t> set);

  struct Way {
    Output predicate;
    int32_t output = 0;
    size_t ways = 0;
  };

  std::vector<int> of_;  // by node
  // What decides: twice a node's number, or one more than twice a way's. Sorted.
  std::vector<std::vector<int64_t>> sets_;
  std::map<std::vector<int64_t>, int> ids_;
  std::map<std::pair<int, int>, int> joined_;
  std::vector<Way> ways_;
  std::map<std::pair<std::pair<NodeId, int32_t>, int32_t>, int64_t> numbers_;  // of ways
  std::vector<Loop> loops_;
  std::map<NodeId, size_t> loop_of_;  // by Merge and Exit
};

}  // namespace millrace
