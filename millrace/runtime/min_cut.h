#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

// A directed graph whose edges cost something to cut: for choices between two ways to do each of
// many things, where a pair that is done in different ways costs extra.
class MinCut {
 public:
  // More than a cut may cost: an edge of so much is never cut where another cut is possible.
  static constexpr int64_t kNever = int64_t{1} << 60;

  // The number of a new vertex, counted from 0.
  int add_vertex();
  // Cutting `to` off from `from` costs that much, at least 0; all edges but those of kNever are to
  // cost less than kNever together.
  void add_edge(int from, int to, int64_t cost);

  // Which vertices are on the source's side of the cheapest cut that keeps `sink` from being
  // reached from `source`; of several, that with the smallest such side. Uses the edges up: to be
  // called once.
  std::vector<bool> source_side(int source, int sink);

 private:
  // Each edge is followed by its reverse, whose cost is what flows along it.
  struct Edge {
    int to;
    int64_t left;
  };
  // Numbers the vertices that can be reached by their distance; false when the sink is not among
  // them.
  bool find_levels(int source, int sink);
  void fill_levels(int source, int sink);

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> from_;  // by vertex: numbers of edges
  std::vector<int> level_;              // -1: not reached
};

}  // namespace millrace
