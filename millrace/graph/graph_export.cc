#include <climits>
#include <set>
#include <string>

#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/message_conversion.h"
#include "proto/graph.pb.h"
#include "proto/meta_graph.pb.h"

namespace millrace {
namespace {

// From this version on readers know functions.
constexpr int kFunctionsVersion = 12;

Status write_node(const Graph& graph, const Node& node, tensorflow::NodeDef& proto) {
  proto.set_name(node.name());
  proto.set_op(node.op_name());
  proto.set_device(node.device());
  for (Output input : node.inputs()) {
    const std::string& name = graph.node(input.node).name();
    proto.add_input(input.index == 0 ? name : str_cat(name, ":", input.index));
  }
  for (NodeId source : node.control_inputs()) proto.add_input("^" + graph.node(source).name());
  Status status = attrs_to_proto(node.attrs(), *proto.mutable_attr());
  if (status.ok() && node.origin() != 0) {
    AttrMap origin;
    put_origin(node.origin(), origin);
    status = attrs_to_proto(origin, *proto.mutable_attr());
  }
  return status.with_prefix(str_cat(node.op_name(), " \"", node.name(), "\""));
}

Status write_functions(const FunctionLibrary& functions, tensorflow::GraphDef& def) {
  for (const std::string& name : functions.names()) {
    Ref<Function> function = functions.find(name);
    MR_TRY(write_function_def(*function, *def.mutable_library()->add_function()));
    if (!function->gradient.empty()) {
      auto& gradient = *def.mutable_library()->add_gradient();
      gradient.set_function_name(name);
      gradient.set_gradient_func(function->gradient);
    }
  }
  return ok_status();
}

}  // namespace

Status export_graph_def(const Graph& graph, tensorflow::GraphDef& def, int begin, int end) {
  int count = graph.num_nodes();
  if (end == -1) end = count;
  if (begin < 0 || begin > end || end > count) {
    return out_of_range("expected a range of nodes within [0, ", count, "), found [", begin, ", ",
                        end, ")");
  }
  def.Clear();
  for (NodeId id = begin; id < end; ++id)
    MR_TRY(write_node(graph, graph.node(id), *def.add_node()));
  MR_TRY(write_functions(graph.functions(), def));
  def.mutable_versions()->set_producer(graph.producer_version());
  if (def.has_library()) def.mutable_versions()->set_min_consumer(kFunctionsVersion);
  return ok_status();
}

Result<std::string> export_graph_def_bytes(const Graph& graph, int begin, int end) {
  tensorflow::GraphDef def;
  MR_TRY(export_graph_def(graph, def, begin, end));
  if (def.ByteSizeLong() > INT_MAX) {
    return resource_exhausted("expected a graph of at most ", INT_MAX,
                              " bytes as a message, found ", def.ByteSizeLong());
  }
  return deterministic_bytes(def);
}

Status export_meta_graph(const Graph& graph, tensorflow::MetaGraphDef& meta) {
  MR_TRY(export_graph_def(graph, *meta.mutable_graph_def()));
  std::set<std::string> used;
  for (const auto& node : meta.graph_def().node()) used.insert(node.op());
  for (const auto& function : meta.graph_def().library().function()) {
    for (const auto& node : function.node_def()) used.insert(node.op());
  }
  auto& info = *meta.mutable_meta_info_def();
  info.clear_stripped_op_list();
  info.set_stripped_default_attrs(false);
  for (const std::string& name : used) {
    const OpDef* op = graph.registry().find(name);
    if (op == nullptr) continue;
    OpDef stripped = *op;
    stripped.doc.clear();
    for (ArgDef& arg : stripped.inputs) arg.doc.clear();
    for (ArgDef& arg : stripped.outputs) arg.doc.clear();
    for (AttrDef& attr : stripped.attrs) attr.doc.clear();
    MR_TRY(write_op_def(stripped, *info.mutable_stripped_op_list()->add_op()));
  }
  return ok_status();
}

}  // namespace millrace
