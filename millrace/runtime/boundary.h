#pragma once

#include <map>

#include "millrace/runtime/subgraph.h"

namespace millrace {

// What enters and leaves a graph that is to run: the types of its _Arg and _Retval nodes, by
// position in the signature.
struct Boundary {
  std::map<int, DType> feeds;
  std::map<int, DType> fetches;
};

// The boundary of `graph`. INVALID_ARGUMENT names a node whose position is not below `num_feeds` or
// `num_fetches`, or is there twice: runs have one slot by position.
Result<Boundary> read_boundary(const Subgraph& graph, size_t num_feeds, size_t num_fetches);

// The most feeds or fetches that a graph from elsewhere may have.
inline constexpr size_t kMaxPositions = size_t{1} << 20;

}  // namespace millrace
