#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/graph/shape_context.h"

namespace millrace {

class Subgraph;
struct SubNode;

// On an _Arg: what every tensor fed there conforms to, by the word of whoever checks the feeds.
inline constexpr std::string_view kFeedShapeAttr = "_feed_shape";

// On a node that makes a variable, of which it gives a reference: the variable has the shape that
// the node declares, whenever it has a value, by the word of whoever knows all that may change it.
inline constexpr std::string_view kHeldShapeAttr = "_held_shape";

// What is certain about the tensors of a Subgraph: shapes, small integers, constants (graph/'s
// TensorFacts), worked out by the ops' rules from the nodes there are. Nothing comes from what a
// client inferred, since other tensors may be fed. Unknown are feeds (but see kFeedShapeAttr), what
// ops with state give, references (but see kHeldShapeAttr), the contents of resources, and what a
// rule refuses: the run will say so. A loop's variable has the sizes that every iteration leaves as
// they are.
class SubgraphFacts {
 public:
  SubgraphFacts() = default;
  // With `declared`, what ops with state, references and resources declare is believed, for who
  // wants an estimate: a variable's value has the variable's shape.
  explicit SubgraphFacts(bool declared) : declared_(declared) {}
  // A copy of a graph begins without.
  SubgraphFacts(const SubgraphFacts&) {}
  SubgraphFacts& operator=(const SubgraphFacts& other);
  SubgraphFacts(SubgraphFacts&&) = default;
  SubgraphFacts& operator=(SubgraphFacts&&) = default;

  // Brings it up to date: works out what is new or was changed since the last time, and what
  // follows from that. Linear in the graph. INVALID_ARGUMENT for a cycle.
  Status update(const Subgraph& graph);
  // As of the last update.
  const TensorFacts& of(Output o) const {
    return entries_[static_cast<size_t>(o.node)].facts[static_cast<size_t>(o.index)];
  }
  // Node i is called map[i] from now on; -1: it is gone.
  void renumber(std::span<const NodeId> map);
  // How many times a rule was asked so far: for tests.
  int64_t work() const { return work_; }

 private:
  struct Entry {
    // What the facts follow from, besides those of the inputs.
    const OpDef* op = nullptr;
    std::shared_ptr<const AttrMap> attrs;
    std::vector<Output> inputs;
    // Of a loop's Merge: what comes back conforms to it. Unset: it is taken to be as what entered.
    std::optional<TensorFacts> back;
    std::vector<TensorFacts> facts;
    bool stale = false;    // `back` has changed
    bool changed = false;  // in this pass over the graph
  };
  Entry& entry(NodeId id) { return entries_[static_cast<size_t>(id)]; }
  void walk(const Subgraph& graph, std::span<const NodeId> order);
  bool outdated(const Subgraph& graph, NodeId id);
  std::vector<TensorFacts> work_out(const Subgraph& graph, NodeId id);
  bool widen(const Subgraph& graph, bool give_up);
  // Whether something besides inputs and attributes decides what comes out.
  bool is_opaque(const SubNode& node) const;
  // Whether what a node with state declares counts.
  bool believed(const SubNode& node) const;

  bool declared_ = false;
  std::vector<Entry> entries_;  // by node
  int64_t work_ = 0;
};

}  // namespace millrace
