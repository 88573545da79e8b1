#include "millrace/runtime/min_cut.h"

#include <algorithm>

namespace millrace {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

int MinCut::add_vertex() {
  from_.emplace_back();
  return static_cast<int>(from_.size()) - 1;
}

void MinCut::add_edge(int from, int to, int64_t cost) {
  if (from == to || cost <= 0) return;
  from_[at(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, cost});
  from_[at(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

// Dinic's algorithm: the largest flow is as large as the cheapest cut, and when no more fits, what
// can still be reached is on the source's side.
std::vector<bool> MinCut::source_side(int source, int sink) {
  while (find_levels(source, sink)) fill_levels(source, sink);
  std::vector<bool> side(from_.size());
  for (size_t v = 0; v < side.size(); ++v) side[v] = level_[v] >= 0;
  return side;
}

bool MinCut::find_levels(int source, int sink) {
  level_.assign(from_.size(), -1);
  level_[at(source)] = 0;
  std::vector<int> reached = {source};
  for (size_t i = 0; i < reached.size(); ++i) {
    for (int e : from_[at(reached[i])]) {
      const Edge& edge = edges_[at(e)];
      if (edge.left == 0 || level_[at(edge.to)] >= 0) continue;
      level_[at(edge.to)] = level_[at(reached[i])] + 1;
      reached.push_back(edge.to);
    }
  }
  return level_[at(sink)] >= 0;
}

// Sends along paths from level to level until each of them has a full edge.
void MinCut::fill_levels(int source, int sink) {
  std::vector<size_t> next(from_.size(), 0);  // by vertex: the edge to try
  std::vector<int> path;                      // of edges, from the source to `v`
  int v = source;
  for (;;) {
    if (v == sink) {
      int64_t flow = kNever;
      for (int e : path) flow = std::min(flow, edges_[at(e)].left);
      size_t full = 0;  // the first edge that is
      for (size_t i = path.size(); i-- > 0;) {
        edges_[at(path[i])].left -= flow;
        edges_[at(path[i] ^ 1)].left += flow;
        if (edges_[at(path[i])].left == 0) full = i;
      }
      v = edges_[at(path[full] ^ 1)].to;
      path.resize(full);
      continue;
    }
    const std::vector<int>& edges = from_[at(v)];
    size_t& i = next[at(v)];
    while (i < edges.size() && (edges_[at(edges[i])].left == 0 ||
                                level_[at(edges_[at(edges[i])].to)] != level_[at(v)] + 1)) {
      ++i;
    }
    if (i < edges.size()) {
      path.push_back(edges[i]);
      v = edges_[at(edges[i])].to;
    } else if (path.empty()) {
      return;
    } else {
      level_[at(v)] = -1;
      v = edges_[at(path.back() ^ 1)].to;
      path.pop_back();
    }
  }
}

}  // namespace millrace
