#include "millrace/runtime/portable_graph.h"

#include "millrace/graph/graph_def.h"
#include "millrace/runtime/lower.h"
#include "proto/graph.pb.h"

namespace millrace {
namespace {

bool takes_references(const Graph& graph, const Node& node) {
  if (node.op().traits.functional == FunctionalOp::kNone) return false;
  for (const Output& input : node.inputs()) {
    if (is_ref(graph.output_type(input))) return true;
  }
  return false;
}

}  // namespace

Result<std::string> portable_graph_def_bytes(const Graph& graph) {
  const NodeId size = graph.num_nodes();
  bool any = false;
  for (NodeId id = 0; id < size && !any; ++id) any = takes_references(graph, graph.node(id));
  if (!any) return export_graph_def_bytes(graph);
  tensorflow::GraphDef def;
  MR_TRY(export_graph_def(graph, def, 0, size));
  Subgraph lowered = Subgraph::from_graph(graph);
  LoweredOutputs outputs;
  MR_TRY(lower_functions(lowered, 0, graph.shared_functions(), outputs, Lower::kTakesReferences));
  for (NodeId id = 0; id < size; ++id) MR_TRY(outputs.error(id));
  MR_TRY_ASSIGN(const std::string bytes, lowered.to_graph_def_bytes());
  tensorflow::GraphDef nodes;
  if (!nodes.ParseFromString(bytes)) return internal("a lowered graph cannot be read back");
  // Nodes that stay are as the graph has them, with other inputs perhaps.
  for (NodeId id = 0; id < size; ++id) {
    tensorflow::NodeDef& node = *nodes.mutable_node(id);
    if (outputs.contains(id)) continue;
    node.mutable_input()->Swap(def.mutable_node(id)->mutable_input());
    node.Swap(def.mutable_node(id));
  }
  def.mutable_node()->Swap(nodes.mutable_node());
  std::string out;
  if (!def.SerializeToString(&out)) {
    return resource_exhausted("the graph is too large for one message of 2 GiB");
  }
  return out;
}

}  // namespace millrace
