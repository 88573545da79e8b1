#include "millrace/runtime/subgraph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/message_conversion.h"
#include "proto/graph.pb.h"

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

}  // namespace

void SubNode::set_attr(std::string_view attr_name, AttrValue value) {
  auto copy = std::make_shared<AttrMap>(*attrs);
  copy->set(attr_name, std::move(value));
  attrs = std::move(copy);
}

Subgraph Subgraph::derived() const {
  Subgraph out(*registry_);
  out.devices_ = devices_;
  return out;
}

SubNode Subgraph::detached_copy(const Node& node) {
  SubNode out;
  out.name = node.name();
  out.op = &node.op();
  out.op_owner = node.op_owner();
  out.attrs = std::make_shared<const AttrMap>(node.attrs());
  out.input_types.assign(node.input_types().begin(), node.input_types().end());
  out.output_types.assign(node.output_types().begin(), node.output_types().end());
  out.device = devices_.intern(node.device());
  out.origin = node.origin();
  return out;
}

SubNode Subgraph::copy_of(const Node& node) {
  SubNode out = detached_copy(node);
  out.inputs.assign(node.inputs().begin(), node.inputs().end());
  out.control_inputs.assign(node.control_inputs().begin(), node.control_inputs().end());
  return out;
}

NodeId Subgraph::add(SubNode node) {
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size()) - 1;
}

Result<NodeId> Subgraph::add(std::string name, std::string_view op, std::vector<Output> inputs,
                             std::vector<NodeId> control_inputs, AttrMap attrs, DeviceId device) {
  SubNode node;
  MR_TRY_ASSIGN(node.op, registry_->lookup(op));
  MR_TRY(check_attrs(*node.op, attrs));
  MR_TRY_ASSIGN(node.input_types, expand_types(node.op->inputs, attrs));
  MR_TRY_ASSIGN(node.output_types, expand_types(node.op->outputs, attrs));
  if (node.input_types.size() != inputs.size()) {
    return internal(op, " \"", name, "\": expected ", node.input_types.size(), " inputs, got ",
                    inputs.size());
  }
  node.name = std::move(name);
  node.attrs = std::make_shared<const AttrMap>(std::move(attrs));
  node.inputs = std::move(inputs);
  node.control_inputs = std::move(control_inputs);
  node.device = device;
  return add(std::move(node));
}

NodeId Subgraph::add_copy(const Node& node, std::span<const NodeId> node_map) {
  SubNode out = copy_of(node);
  for (Output& input : out.inputs) input.node = node_map[index(input.node)];
  for (NodeId& id : out.control_inputs) id = node_map[index(id)];
  return add(std::move(out));
}

std::vector<std::vector<Subgraph::Use>> Subgraph::uses() const {
  std::vector<std::vector<Use>> out(nodes_.size());
  for (NodeId id = 0; id < size(); ++id) {
    const SubNode& n = node(id);
    if (n.erased) continue;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      out[index(n.inputs[i].node)].push_back({id, static_cast<int>(i), n.inputs[i].index});
    }
    for (NodeId c : n.control_inputs) out[index(c)].push_back({id, -1, -1});
  }
  return out;
}

Result<std::vector<NodeId>> Subgraph::topological_order() const {
  std::vector<int> missing(nodes_.size(), 0);
  std::vector<std::vector<NodeId>> next(nodes_.size());
  size_t live = 0;
  for (NodeId id = 0; id < size(); ++id) {
    const SubNode& n = node(id);
    if (n.erased) continue;
    ++live;
    for (Output input : n.inputs) {
      if (is_back_edge(node(input.node), n)) continue;
      next[index(input.node)].push_back(id);
      ++missing[index(id)];
    }
    for (NodeId c : n.control_inputs) {
      next[index(c)].push_back(id);
      ++missing[index(id)];
    }
  }
  std::vector<NodeId> order;
  order.reserve(live);
  for (NodeId id = 0; id < size(); ++id) {
    if (!node(id).erased && missing[index(id)] == 0) order.push_back(id);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (NodeId to : next[index(order[i])]) {
      if (--missing[index(to)] == 0) order.push_back(to);
    }
  }
  if (order.size() == live) return order;
  std::vector<std::string> stuck;
  for (NodeId id = 0; id < size() && stuck.size() < 5; ++id) {
    if (!node(id).erased && missing[index(id)] > 0) stuck.push_back(node(id).name);
  }
  return invalid_argument(live - order.size(), " nodes in a cycle: ", str_join(stuck, ", "),
                          live - order.size() > stuck.size() ? ", ..." : "");
}

bool is_back_edge(const SubNode& from, const SubNode& to) {
  return from.op->traits.control_flow == ControlFlow::kNextIteration &&
         to.op->traits.control_flow == ControlFlow::kMerge;
}

Result<const SubgraphFacts*> Subgraph::facts() {
  MR_TRY(facts_.update(*this));
  return &facts_;
}

void Subgraph::compact() {
  std::vector<NodeId> map(nodes_.size(), -1);
  NodeId kept = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].erased) map[i] = kept++;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].erased) continue;
    for (Output& input : nodes_[i].inputs) input.node = map[index(input.node)];
    for (NodeId& c : nodes_[i].control_inputs) c = map[index(c)];
    if (index(map[i]) != i) nodes_[index(map[i])] = std::move(nodes_[i]);
  }
  nodes_.resize(index(kept));
  facts_.renumber(map);
}

std::string Subgraph::unique_name(std::string_view base) {
  // Names that the runtime makes end in "/_<number>", which clients cannot write.
  return str_cat(base, "/_", ++next_name_);
}

Result<std::string> Subgraph::to_graph_def_bytes() const {
  tensorflow::GraphDef def;
  for (const SubNode& n : nodes_) {
    if (n.erased) continue;
    tensorflow::NodeDef* out = def.add_node();
    out->set_name(n.name);
    out->set_op(n.op->name);
    out->set_device(device_name(n));
    for (Output input : n.inputs) {
      const std::string& from = node(input.node).name;
      out->add_input(input.index == 0 ? from : str_cat(from, ":", input.index));
    }
    for (NodeId c : n.control_inputs) out->add_input(str_cat("^", node(c).name));
    AttrMap attrs = *n.attrs;
    put_origin(n.origin, attrs);
    for (const auto& [key, value] : attrs) {
      MR_TRY(attr_to_proto(value, (*out->mutable_attr())[key]));
    }
  }
  def.mutable_versions()->set_producer(kGraphVersion);
  std::string bytes;
  if (!def.SerializeToString(&bytes)) {
    return resource_exhausted("the graph is too large for one message of 2 GiB");
  }
  return bytes;
}

Result<Subgraph> Subgraph::from_graph_def_bytes(std::string_view bytes,
                                                const OpRegistry& registry) {
  Ref<Graph> graph = make_ref<Graph>(registry);
  ImportOptions options;
  options.allow_internal_names = true;
  MR_TRY_ASSIGN(ImportResult imported, import_graph_def_bytes(bytes, options, *graph));
  if (!imported.unknown_ops.empty()) {
    return not_found("Op type not registered: ", str_join(imported.unknown_ops, ", "));
  }
  return from_graph(*graph);
}

Subgraph Subgraph::from_graph(const Graph& graph) {
  Subgraph out(graph.registry());
  for (NodeId id = 0; id < graph.num_nodes(); ++id) out.add(out.copy_of(graph.node(id)));
  return out;
}

Result<FrameInfo> analyze_frames(const Subgraph& graph) {
  FrameInfo info;
  info.frames.emplace_back();
  info.node_frame.assign(static_cast<size_t>(graph.size()), 0);
  info.output_frame.assign(static_cast<size_t>(graph.size()), 0);
  std::unordered_map<std::string, int> children;  // "parent;name"
  MR_TRY_ASSIGN(std::vector<NodeId> order, graph.topological_order());
  for (NodeId id : order) {
    const SubNode& node = graph.node(id);
    auto where = [&] { return str_cat(node.op->name, " \"", node.name, "\""); };
    int frame = -1;
    auto join = [&](NodeId from) -> Status {
      int other = info.output_frame[index(from)];
      if (frame < 0) frame = other;
      if (frame == other) return ok_status();
      const auto& f = info.frames;
      return invalid_argument(
          where(), " has inputs from different frames, '", f[index(frame)].name, "' and '",
          f[index(other)].name, "' (through \"", graph.node(from).name,
          "\"); a loop is fed by what goes into its Enter nodes, and everything "
          "else that it uses comes through an Enter, too");
    };
    for (Output input : node.inputs) {
      if (is_back_edge(graph.node(input.node), node)) continue;
      MR_TRY(join(input.node));
    }
    for (NodeId c : node.control_inputs) MR_TRY(join(c));
    if (frame < 0) frame = 0;
    info.node_frame[index(id)] = frame;
    int out = frame;
    ControlFlow flow = node.op->traits.control_flow;
    if (flow == ControlFlow::kEnter) {
      MR_TRY_ASSIGN(std::string name, node.attr<std::string>("frame_name"));
      if (name.empty()) return invalid_argument(where(), ": frame_name must not be empty");
      MR_TRY_ASSIGN(int64_t parallel, node.attr<int64_t>("parallel_iterations"));
      if (parallel < 1 || parallel > INT32_MAX) {
        return invalid_argument(where(), ": parallel_iterations must be at least 1, got ",
                                parallel);
      }
      auto [it, added] =
          children.try_emplace(str_cat(frame, ";", name), static_cast<int>(info.frames.size()));
      if (added) {
        FrameInfo::Frame& f = info.frames.emplace_back();
        f.name = std::move(name);
        f.parent = frame;
        f.parallel_iterations = static_cast<int>(parallel);
      } else if (info.frames[index(it->second)].parallel_iterations != parallel) {
        return invalid_argument(where(), ": frame '", name, "' has parallel_iterations ",
                                info.frames[index(it->second)].parallel_iterations,
                                " elsewhere, got ", parallel);
      }
      out = it->second;
      info.frames[index(out)].enters.push_back(id);
    } else if (flow == ControlFlow::kExit || flow == ControlFlow::kNextIteration) {
      if (frame == 0) {
        return invalid_argument(where(),
                                " is not inside any frame: no Enter leads to it, or what "
                                "enters the loop was fed; feed the Enter's input instead");
      }
      if (flow == ControlFlow::kExit) out = info.frames[index(frame)].parent;
    } else if (node.op->traits.result && frame != 0) {
      return invalid_argument(where(), " fetches a tensor inside of frame '",
                              info.frames[index(frame)].name,
                              "', which has a value in each iteration; fetch what leaves the loop "
                              "through an Exit");
    } else if (flow == ControlFlow::kLoopCond) {
      info.frames[index(frame)].loop_cond = id;
    }
    info.output_frame[index(id)] = out;
  }
  for (NodeId id : order) {
    const SubNode& node = graph.node(id);
    for (Output input : node.inputs) {
      if (!is_back_edge(graph.node(input.node), node)) continue;
      if (info.node_frame[index(id)] != info.output_frame[index(input.node)]) {
        return invalid_argument("NextIteration \"", graph.node(input.node).name,
                                "\" closes a loop in another frame than Merge \"", node.name, "\"");
      }
    }
  }
  return info;
}

}  // namespace millrace
