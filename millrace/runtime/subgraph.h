#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/runtime/device_table.h"
#include "millrace/runtime/subgraph_facts.h"

namespace millrace {

// A node that passes may change: the same facts as a graph's Node, inputs by index into the
// Subgraph.
struct SubNode {
  std::string name;
  const OpDef* op = nullptr;
  Ref<RefCounted> op_owner;              // keeps a definition that is not of the registry
  std::shared_ptr<const AttrMap> attrs;  // shared by copies; replaced, never changed
  std::vector<Output> inputs;
  std::vector<NodeId> control_inputs;
  std::vector<DType> input_types;
  std::vector<DType> output_types;
  DeviceId device = 0;  // what was asked for; after placement the device's full name
  OriginId origin = 0;
  bool erased = false;  // left out by compact()

  template <class T>
  Result<T> attr(std::string_view attr_name) const {
    return read_attr<T>(*attrs, attr_name);
  }
  // Replaces the attributes by a copy with this one set.
  void set_attr(std::string_view attr_name, AttrValue value);
};

// The part of a graph that one request needs, on its way to becoming plans. Passes edit it in
// place; it can be written to and read from GraphDef bytes at any time between passes (a master
// ships partitions).
class Subgraph {
 public:
  explicit Subgraph(const OpRegistry& registry) : registry_(&registry) {}

  const OpRegistry& registry() const { return *registry_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  SubNode& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const SubNode& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  std::vector<SubNode>& nodes() { return nodes_; }
  const std::vector<SubNode>& nodes() const { return nodes_; }

  // The names of all devices that nodes hold.
  DeviceTable& devices() { return devices_; }
  const DeviceTable& devices() const { return devices_; }
  const std::string& device_name(const SubNode& node) const { return devices_.name(node.device); }
  // A graph without nodes that nodes from here may be added to: a device has the same id there.
  Subgraph derived() const;

  // Appends a node; its inputs exist already, except the back edges of a Merge (set later).
  NodeId add(SubNode node);
  // Makes a node of a registered op: attributes are checked and completed, types worked out.
  Result<NodeId> add(std::string name, std::string_view op, std::vector<Output> inputs,
                     std::vector<NodeId> control_inputs, AttrMap attrs, DeviceId device);
  // Appends a copy of a graph's node; `node_map` gives the ids of its inputs here.
  NodeId add_copy(const Node& node, std::span<const NodeId> node_map);
  // A graph's node without its edges, to be added here.
  SubNode detached_copy(const Node& node);

  DType output_type(Output o) const {
    return node(o.node).output_types[static_cast<size_t>(o.index)];
  }

  // Who reads each node: data consumers by output, and control consumers.
  struct Use {
    NodeId node = -1;
    int input = -1;   // -1: a control edge
    int output = -1;  // of the producer; -1: a control edge
  };
  std::vector<std::vector<Use>> uses() const;

  // Producers before consumers; edges from a NextIteration to a Merge do not count.
  // INVALID_ARGUMENT "N nodes in a cycle" naming some of them otherwise.
  Result<std::vector<NodeId>> topological_order() const;

  // What is certain about every tensor as the graph stands. Costs nothing until asked for; what was
  // worked out before is kept as far as it still holds.
  Result<const SubgraphFacts*> facts();

  // Drops erased nodes and renumbers the rest. No live node may use an erased one.
  void compact();

  // A name that no node here has: `base` followed by a number.
  std::string unique_name(std::string_view base);

  Result<std::string> to_graph_def_bytes() const;
  static Result<Subgraph> from_graph_def_bytes(std::string_view bytes, const OpRegistry& registry);
  // All nodes of a graph, in the graph's order.
  static Subgraph from_graph(const Graph& graph);

 private:
  SubNode copy_of(const Node& node);

  const OpRegistry* registry_;
  DeviceTable devices_;
  std::vector<SubNode> nodes_;
  SubgraphFacts facts_;
  int64_t next_name_ = 0;
};

// An edge from a NextIteration to a Merge.
bool is_back_edge(const SubNode& from, const SubNode& to);

// The loop frames of a graph: which frame each node is in.
struct FrameInfo {
  struct Frame {
    std::string name;  // attribute frame_name; empty: the root
    int parent = -1;
    int parallel_iterations = 10;
    NodeId loop_cond = -1;  // -1: none
    std::vector<NodeId> enters;
  };
  std::vector<Frame> frames;  // [0] is the root
  std::vector<int>
      node_frame;  // the frame a node runs in (its inputs' frame): an Enter is in the parent
  // The frame in which a node's outputs live: the child for Enter, the parent for Exit, else its
  // own.
  std::vector<int> output_frame;
};
// INVALID_ARGUMENT for a node with inputs from two frames, an Enter without a name, an Exit or
// NextIteration outside any frame, a fetch inside one.
Result<FrameInfo> analyze_frames(const Subgraph& graph);

}  // namespace millrace
