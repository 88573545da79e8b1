#include "millrace/autodiff/forward_order.h"

namespace millrace {
namespace {

bool is_back_edge(const Graph& graph, const Node& node, Output input) {
  return node.op().traits.control_flow == ControlFlow::kMerge &&
         graph.node(input.node).op().traits.control_flow == ControlFlow::kNextIteration;
}

}  // namespace

std::vector<NodeId> forward_order(const Graph& graph, std::span<const NodeId> roots) {
  return forward_order(graph, roots, [](Output) { return true; });
}

std::vector<NodeId> forward_order(const Graph& graph, std::span<const NodeId> roots,
                                  FunctionRef<bool(Output)> follows) {
  std::vector<NodeId> order;
  std::vector<bool> seen(static_cast<size_t>(graph.num_nodes()), false);
  struct Visit {
    NodeId node;
    int next;
  };
  std::vector<Visit> stack;
  auto visit = [&](NodeId id) {
    if (seen[static_cast<size_t>(id)]) return;
    seen[static_cast<size_t>(id)] = true;
    stack.push_back({id, 0});
  };
  for (NodeId root : roots) {
    visit(root);
    while (!stack.empty()) {
      const Node& node = graph.node(stack.back().node);
      if (stack.back().next == node.num_inputs()) {
        order.push_back(node.id());
        stack.pop_back();
        continue;
      }
      Output input = node.input(stack.back().next++);
      if (!is_back_edge(graph, node, input) && follows(input)) visit(input.node);
    }
  }
  return order;
}

}  // namespace millrace
