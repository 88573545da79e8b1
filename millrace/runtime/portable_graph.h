#pragma once

#include <string>

#include "millrace/graph/graph.h"

namespace millrace {

// The graph as a GraphDef that TensorFlow reads. As export_graph_def_bytes(), but functional nodes
// that take references (a variable assigned to in a branch) are written in lowered form, as Switch,
// Merge and so on: TensorFlow has no functions of references.
Result<std::string> portable_graph_def_bytes(const Graph& graph);

}  // namespace millrace
