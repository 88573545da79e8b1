// Any bytes at all: importing them gives a graph or an error, and an error leaves the graph as it
// was. What was imported can be exported and imported again, to the same bytes.

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/base/check.h"
#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/toy_ops.h"

namespace millrace {
namespace {

ImportOptions small_constants() {
  ImportOptions options;
  options.max_constant_bytes = 1 << 16;
  return options;
}

// Errors are fine, they only must not take the process with them.
void instantiate_all(const Graph& graph) {
  for (const std::string& name : graph.functions().names()) {
    (void)graph.functions().instantiate(name, {}, graph.registry());
  }
}

void run(std::string_view bytes) {
  Ref<Graph> graph = make_ref<Graph>(toy_registry());
  if (!import_graph_def_bytes(bytes, small_constants(), *graph).ok()) {
    MR_CHECK(graph->num_nodes() == 0);
    MR_CHECK(graph->functions().names().empty());
    return;
  }
  instantiate_all(*graph);
  Result<std::string> exported = export_graph_def_bytes(*graph);
  if (!exported.ok()) return;

  // A constant of one repeated value is written out in full, so it needs no allowance any more.
  Ref<Graph> again = make_ref<Graph>(toy_registry());
  MR_CHECK_OK(import_graph_def_bytes(*exported, small_constants(), *again).status());
  MR_CHECK(again->num_nodes() == graph->num_nodes());
  for (NodeId id = 0; id < graph->num_nodes(); ++id) {
    MR_CHECK(again->node(id).name() == graph->node(id).name());
    MR_CHECK(again->node(id).attrs() == graph->node(id).attrs());
    MR_CHECK(again->node(id).origin() == graph->node(id).origin());
    for (int i = 0; i < graph->node(id).num_outputs(); ++i) {
      MR_CHECK(again->node(id).output_type(i) == graph->node(id).output_type(i));
      MR_CHECK(again->node(id).output_shape(i) == graph->node(id).output_shape(i));
    }
  }
  Result<std::string> twice = export_graph_def_bytes(*again);
  MR_CHECK_OK(twice.status());
  MR_CHECK(*twice == *exported);
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
