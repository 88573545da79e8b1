#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/graph/attr_value.h"
#include "millrace/graph/op_registry.h"
#include "millrace/graph/origin.h"
#include "millrace/graph/shape_context.h"

namespace millrace {

class FunctionLibrary;

using NodeId = int32_t;

// One output of a node: the tensor that flows from it.
struct Output {
  NodeId node = -1;
  int32_t index = 0;
  bool valid() const { return node >= 0; }
  friend bool operator==(Output, Output) = default;
};

// What a node is made from.
struct NodeSpec {
  std::string name;
  std::string op;
  std::vector<Output> inputs = {};  // list arguments expanded
  std::vector<NodeId> control_inputs = {};
  AttrMap attrs = {};  // without defaults; type and number attributes must be there
  std::string device = {};
  OriginId origin = 0;
  // Of a Merge: the numbers of inputs that only stand in for back edges to come (set_back_edge).
  // Any tensor of the right type will do; nothing of its shape is used.
  std::vector<int32_t> back_edges = {};
};

// An operation in a graph. Read-only for all but its graph.
class Node {
 public:
  NodeId id() const { return id_; }
  const std::string& name() const { return name_; }
  const OpDef& op() const { return *op_; }
  // The op's name; a function's name when the node calls one.
  const std::string& op_name() const { return op_->name; }
  // Keeps op() alive where it is not of the registry; null where it is.
  const Ref<RefCounted>& op_owner() const { return op_owner_; }
  const AttrMap& attrs() const { return body().attrs; }
  const std::string& device() const { return device_; }
  OriginId origin() const { return origin_; }

  int num_inputs() const { return static_cast<int>(body().inputs.size()); }
  int num_outputs() const { return static_cast<int>(body().output_types.size()); }
  std::span<const Output> inputs() const { return body().inputs; }
  Output input(int i) const { return body().inputs[static_cast<size_t>(i)]; }
  std::span<const NodeId> control_inputs() const { return control_inputs_; }
  // What the op asks for; a reference type where the argument is a reference.
  DType input_type(int i) const { return body().input_types[static_cast<size_t>(i)]; }
  DType output_type(int i) const { return body().output_types[static_cast<size_t>(i)]; }
  std::span<const DType> input_types() const { return body().input_types; }
  std::span<const DType> output_types() const { return body().output_types; }
  // What inference found when the node was added.
  const TensorFacts& facts(int i) const { return body().facts[static_cast<size_t>(i)]; }
  const PartialShape& output_shape(int i) const { return facts(i).shape; }

  template <class T>
  Result<T> attr(std::string_view name) const {
    return read_attr<T>(body().attrs, name);
  }

 private:
  friend class Graph;
  // What Graph::widen() replaces as a whole; the graph keeps what it replaced.
  struct Body {
    std::vector<Output> inputs;
    AttrMap attrs;
    std::vector<DType> input_types;
    std::vector<DType> output_types;
    std::vector<TensorFacts> facts;
  };

  Node() : body_(new Body) {}
  Node(Node&& other) noexcept
      : id_(other.id_),
        name_(std::move(other.name_)),
        op_(other.op_),
        op_owner_(std::move(other.op_owner_)),
        control_inputs_(std::move(other.control_inputs_)),
        device_(std::move(other.device_)),
        origin_(other.origin_),
        body_(other.body_.exchange(nullptr)) {}
  ~Node() { delete body_.load(); }

  const Body& body() const { return *body_.load(std::memory_order_acquire); }
  Body& body() { return *body_.load(std::memory_order_acquire); }

  NodeId id_ = -1;
  std::string name_;
  const OpDef* op_ = nullptr;
  // Keeps a definition that is not of the registry: a function's signature, or that of an unknown
  // op.
  Ref<RefCounted> op_owner_;
  std::vector<NodeId> control_inputs_;
  std::string device_;
  OriginId origin_ = 0;
  std::atomic<Body*> body_;
};

// A dataflow graph: nodes joined by edges that carry tensors, and control edges that only order.
//
// Nodes are only added. They live in chunks that never move, and num_nodes() is published after a
// node is complete: any thread may read the nodes below that count while one thread adds. Adding
// and changing take an internal lock. A node may be changed (device, attribute, control input, back
// edge) until a session has taken it: freeze(), after which changing it is FAILED_PRECONDITION. The
// one exception is widen(), for values that gradients need saved.
//
// Shapes are inferred as nodes are added, so a shape error appears where it was made.
class Graph : public RefCounted {
 public:
  explicit Graph(const OpRegistry& registry = OpRegistry::global());
  // With the functions of another graph: what is added to one is there for both.
  Graph(const OpRegistry& registry, Ref<FunctionLibrary> functions);

  // Adds a node. INVALID_ARGUMENT for a bad or taken name, inputs that do not exist or have another
  // type, attributes that are missing, unknown or out of range, or shapes that the op refuses;
  // NOT_FOUND for an unknown op; UNIMPLEMENTED for one deprecated before producer_version(). An op
  // that the registry does not have may be a function of functions(). The message names op and
  // node, then the origin.
  Result<NodeId> add(NodeSpec spec);

  // Adds a node whose op nobody registered (from an imported graph). It can be neither run nor
  // inferred; its outputs have the types given. An error only when something needs it.
  Result<NodeId> add_unknown(NodeSpec spec, std::vector<DType> output_types);

  // The number of nodes that may be read.
  int num_nodes() const { return published_.load(std::memory_order_acquire); }
  // 0 <= id < num_nodes().
  const Node& node(NodeId id) const { return chunks_[id >> kChunkBits][id & (kChunkSize - 1)]; }
  // -1 when there is none.
  NodeId find(std::string_view name) const;
  // NOT_FOUND naming what was asked.
  Result<NodeId> lookup(std::string_view name) const;
  // "node", "node:1": NOT_FOUND for an unknown node, INVALID_ARGUMENT for a bad string or output
  // number.
  Result<Output> parse_output(std::string_view text) const;
  std::string output_name(Output output) const;  // "node:0"
  DType output_type(Output output) const { return node(output.node).output_type(output.index); }
  const TensorFacts& facts(Output output) const { return node(output.node).facts(output.index); }

  // Closes a loop: input `index` of the Merge `merge` becomes `source`, an output of a
  // NextIteration. INVALID_ARGUMENT when their shapes contradict each other, naming both.
  Status set_back_edge(NodeId merge, int index, Output source);
  Status set_device(NodeId id, std::string device);
  // INVALID_ARGUMENT when the value does not fit the op, or would change a type, shape or known
  // value that later nodes may rest on.
  Status set_attr(NodeId id, std::string_view name, AttrValue value);
  // INVALID_ARGUMENT when it would close a cycle.
  Status add_control_input(NodeId id, NodeId source);
  // Narrows what is known of an output's shape; INVALID_ARGUMENT when it contradicts. Frozen nodes
  // too: sessions infer shapes anew. Nobody may be reading that output's facts meanwhile.
  Status merge_shape(Output output, const PartialShape& shape);
  // The nodes below `count` belong to a session: they do not change any more.
  void freeze(int count);

  // Gives a functional node (an If, a While) further inputs and outputs behind those it has, with
  // the attributes that go with them: how gradients have values saved that the node computed all
  // along. Frozen nodes too: sessions notice by revision() and lower the graph anew. Readers on
  // other threads see the node as it was or as it is. INVALID_ARGUMENT when the types or shapes of
  // what was there would change.
  Status widen(NodeId id, std::span<const Output> more_inputs, AttrMap attrs);
  // How many times widen() has changed a node.
  int64_t revision() const { return revision_.load(std::memory_order_acquire); }

  // Sets what is known of a parameter (an _Arg) before anything uses it.
  Status set_argument_facts(NodeId id, TensorFacts facts);

  // A name not taken yet: `base`, or `base`_1, `base`_2, ... The name is reserved.
  std::string unique_name(std::string_view base);

  FunctionLibrary& functions() { return *functions_; }
  const FunctionLibrary& functions() const { return *functions_; }
  Ref<FunctionLibrary> shared_functions() const;
  const OpRegistry& registry() const { return registry_; }
  // The version of TensorFlow's graph format that this graph says it was produced for.
  int producer_version() const { return producer_version_; }
  void set_producer_version(int version) { producer_version_ = version; }

 protected:
  ~Graph() override;

 private:
  static constexpr int kChunkBits = 9;
  static constexpr int kChunkSize = 1 << kChunkBits;
  static constexpr int kMaxChunks = 1 << 15;
  struct Impl;  // names, lock

  // With the lock held: add() without the context in its errors, and its parts.
  Result<NodeId> add_locked(NodeSpec& spec);
  Status check_name(std::string_view name) const;
  Status find_op(const std::string& name, Node& node) const;
  Status connect(NodeSpec& spec, Node& node) const;
  Result<std::vector<TensorFacts>> infer_node(const OpDef& op, const Node::Body& body,
                                              const AttrMap& attrs) const;
  Status widen_locked(Node& node, std::span<const Output> more_inputs, AttrMap attrs);
  Status check_same_facts(const Node& node, const AttrMap& attrs) const;
  Status check_mutable(NodeId id) const;
  bool depends_on(NodeId node, NodeId target) const;
  Result<NodeId> publish(Node node);
  Node& mutable_node(NodeId id) { return chunks_[id >> kChunkBits][id & (kChunkSize - 1)]; }

  const OpRegistry& registry_;
  Impl* impl_;
  FunctionLibrary* functions_;  // a counted reference
  std::atomic<int> published_{0};
  std::atomic<int64_t> revision_{0};
  int producer_version_;
  Node** chunks_;  // kMaxChunks pointers, so that it never moves
};

// Splits "node:3" or "node" or "^node" by the rules of the graph format; index -1 is a control
// edge. INVALID_ARGUMENT for an empty or malformed text.
struct TensorName {
  std::string node;
  int index = 0;
};
Result<TensorName> parse_tensor_name(std::string_view text);
// Letters, digits, '.', then also '_', '-', '/', '>'. Names that begin with '_' are the runtime's.
bool is_valid_node_name(std::string_view name);
bool is_valid_scope_name(std::string_view name);

}  // namespace millrace
