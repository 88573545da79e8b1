#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/graph/graph.h"

namespace tensorflow {
class AttrValue;
class GraphDef;
class MetaGraphDef;
class NodeDef;
class OpDef;
}  // namespace tensorflow

namespace millrace {

// The graph format version written, and the newest one read.
inline constexpr int kGraphVersion = 2200;

struct ImportOptions {
  // Put before every name with '/' between; empty: names stay as they are.
  std::string prefix;
  // Tensors of the imported graph ("name" or "name:1") that are replaced by tensors of the target.
  std::vector<std::pair<std::string, Output>> input_map;
  // Nodes of the target that every imported node without inputs from the imported graph waits for.
  std::vector<NodeId> control_dependencies;
  // Given to nodes that have no device.
  std::string default_device;
  // Rename a node whose name is taken instead of refusing it.
  bool uniquify_names = false;
  // The runtime's own graphs may use names and ops that begin with '_'.
  bool allow_internal_names = false;
  // How many bytes constants may take beyond what the message holds: a few bytes may stand for a
  // large constant of one repeated value. RESOURCE_EXHAUSTED past it.
  int64_t max_constant_bytes = int64_t{2} << 30;
  // Tensors to look up, by the names they have in the imported graph.
  std::vector<std::string> return_outputs;
};

struct ImportResult {
  // Of ImportOptions::return_outputs.
  std::vector<Output> outputs;
  // Op types that nobody registered, each once: their nodes are in the graph all the same.
  std::vector<std::string> unknown_ops;
};

// Adds the nodes and functions of `def` to `graph`. Nodes may stand in any order; without a prefix
// their inputs may also be nodes that the graph has already. Everything is checked before the graph
// changes: names, inputs, output numbers, types, attributes, cycles (only through NextIteration to
// Merge), versions. On error the graph is as it was. INVALID_ARGUMENT names the node, what was
// expected and what was found.
Result<ImportResult> import_graph_def(const tensorflow::GraphDef& def, const ImportOptions& options,
                                      Graph& graph);
// The same from serialised bytes; INVALID_ARGUMENT when they are no GraphDef.
Result<ImportResult> import_graph_def_bytes(std::string_view bytes, const ImportOptions& options,
                                            Graph& graph);
// From protobuf's text format.
Result<ImportResult> import_graph_def_text(std::string_view text, const ImportOptions& options,
                                           Graph& graph);

// Writes nodes [begin, end) (all by default), functions and versions.
Status export_graph_def(const Graph& graph, tensorflow::GraphDef& def, int begin = 0, int end = -1);
Result<std::string> export_graph_def_bytes(const Graph& graph, int begin = 0, int end = -1);

// A MetaGraphDef with the graph, its op list and versions; collections and signatures are the
// caller's.
Status export_meta_graph(const Graph& graph, tensorflow::MetaGraphDef& meta);
// Imports meta.graph_def; fills stripped defaults from the op list in the file where it has one.
Result<ImportResult> import_meta_graph(const tensorflow::MetaGraphDef& meta,
                                       const ImportOptions& options, Graph& graph);

// Conversions of the parts. Nesting (lists of functions of lists ...) is bounded: INVALID_ARGUMENT
// past 64 levels.
Result<AttrValue> attr_from_proto(const tensorflow::AttrValue& proto);
Status attr_to_proto(const AttrValue& value, tensorflow::AttrValue& proto);
Result<OpDef> op_def_from_proto(const tensorflow::OpDef& proto);
// A default value that cannot be written (a variant that cannot leave the process) is left out.
void op_def_to_proto(const OpDef& op, tensorflow::OpDef& proto);

}  // namespace millrace
