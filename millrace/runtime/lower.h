#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "millrace/graph/function.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// What became of the outputs of functional nodes: by node, for each of its outputs the tensor that
// took its place. The node itself stays, as a NoOp that waits for all that the node did: control
// edges and targets need no translation.
class LoweredOutputs {
 public:
  void set(NodeId node, std::vector<Output> outputs) { outputs_[node] = std::move(outputs); }
  Output operator()(Output o) const {
    auto it = outputs_.find(o.node);
    return it == outputs_.end() ? o : it->second[static_cast<size_t>(o.index)];
  }
  bool contains(NodeId node) const { return outputs_.contains(node); }

  // A node that could not be replaced stays as it is, with the error for whoever needs it.
  void fail(NodeId node, Status error) { errors_[node] = std::move(error); }
  // Ok where there is none.
  Status error(NodeId node) const {
    auto it = errors_.find(node);
    return it == errors_.end() ? ok_status() : it->second;
  }

  void erase_from(NodeId first);

 private:
  std::unordered_map<NodeId, std::vector<Output>> outputs_;
  std::unordered_map<NodeId, Status> errors_;
};

// Replaces the nodes from `first` on that call, choose or repeat functions (traits.functional, and
// calls of a function by its name) by the functions' nodes, joined by Switch, Merge, Enter, Exit,
// NextIteration and LoopCond, until none is left. Names are a pure function of the path:
// "loop/body/add", so that state inside belongs to all signatures and survives being lowered again.
// Output i of node "loop" is afterwards an Identity: "loop" for the first, "loop/_output_i".
//
// Loop variables that the body hands on unchanged enter once, as constants. References are not
// switched; what uses them waits for its branch.
//
// With `which` kTakesReferences only nodes whose inputs are references are replaced, in bodies too.
//
// A node whose functions do not fit it, or hold ops that nobody registered, stays, with an error
// that names it. More than ten million nodes in all are RESOURCE_EXHAUSTED.
enum class Lower : uint8_t { kAll, kTakesReferences };
Status lower_functions(Subgraph& graph, NodeId first, const Ref<FunctionLibrary>& functions,
                       LoweredOutputs& outputs, Lower which = Lower::kAll);

}  // namespace millrace
