#include "millrace/runtime/min_cut.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace millrace {
namespace {

TEST(MinCut, CutsWhereItIsCheapest) {
  MinCut cut;
  const int source = cut.add_vertex(), a = cut.add_vertex(), b = cut.add_vertex(),
            sink = cut.add_vertex();
  cut.add_edge(source, a, 5);
  cut.add_edge(a, b, 2);
  cut.add_edge(b, sink, 3);
  EXPECT_EQ(cut.source_side(source, sink), (std::vector<bool>{true, true, false, false}));
}

TEST(MinCut, OfEqualOnesTheFirst) {
  MinCut cut;
  const int source = cut.add_vertex(), a = cut.add_vertex(), sink = cut.add_vertex();
  cut.add_edge(source, a, 2);
  cut.add_edge(a, sink, 2);
  EXPECT_EQ(cut.source_side(source, sink), (std::vector<bool>{true, false, false}));
}

TEST(MinCut, WhatNothingLeadsToIsTheSinks) {
  MinCut cut;
  const int source = cut.add_vertex(), a = cut.add_vertex(), sink = cut.add_vertex();
  cut.add_edge(a, sink, 1);
  EXPECT_EQ(cut.source_side(source, sink), (std::vector<bool>{true, false, false}));
}

// Against trying all cuts: no other is cheaper, and none as cheap has a smaller side of the source.
TEST(MinCut, LikeTryingAll) {
  struct Edge {
    int from, to;
    int64_t cost;
  };
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int n = 2 + static_cast<int>(random() % 8);
    MinCut cut;
    for (int i = 0; i < n; ++i) cut.add_vertex();
    std::vector<Edge> edges;
    for (int i = static_cast<int>(random() % 30); i > 0; --i) {
      const auto vertex = [&] { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
      edges.push_back({vertex(), vertex(), static_cast<int64_t>(random() % 6)});
      cut.add_edge(edges.back().from, edges.back().to, edges.back().cost);
    }
    const auto cost = [&](uint32_t side) {
      int64_t sum = 0;
      for (const Edge& e : edges) {
        if ((side >> e.from & 1) != 0 && (side >> e.to & 1) == 0) sum += e.cost;
      }
      return sum;
    };
    int64_t least = std::numeric_limits<int64_t>::max();
    uint32_t smallest = 0;
    for (uint32_t side = 1; side < 1U << n; side += 2) {
      if ((side >> 1 & 1) != 0) continue;  // vertex 1 is the sink
      if (cost(side) < least) smallest = side;
      if (cost(side) == least) smallest &= side;
      least = std::min(least, cost(side));
    }
    uint32_t found = 0;
    const std::vector<bool> side = cut.source_side(0, 1);
    for (int i = 0; i < n; ++i) found |= uint32_t{side[static_cast<size_t>(i)]} << i;
    EXPECT_EQ(cost(found), least);
    EXPECT_EQ(found, smallest);
  }
}

}  // namespace
}  // namespace millrace
