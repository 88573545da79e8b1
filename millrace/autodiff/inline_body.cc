#include "millrace/autodiff/inline_body.h"

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

// What `results` need of the graph, up to `from`.
std::vector<bool> find_needed(const Graph& graph, std::span<const Output> from,
                              std::span<const Output> results) {
  std::vector<bool> needed(static_cast<size_t>(graph.num_nodes()), false);
  std::vector<NodeId> todo;
  auto need = [&](Output o) {
    for (Output f : from) {
      if (f == o) return;
    }
    todo.push_back(o.node);
  };
  for (Output result : results) need(result);
  while (!todo.empty()) {
    NodeId id = todo.back();
    todo.pop_back();
    if (needed[index(id)]) continue;
    needed[index(id)] = true;
    for (Output input : graph.node(id).inputs()) need(input);
    for (NodeId control : graph.node(id).control_inputs()) {
      if (!graph.node(control).op().traits.argument) todo.push_back(control);
    }
  }
  return needed;
}

}  // namespace

Result<std::vector<Expr>> inline_graph(GraphBuilder& builder, const Graph& graph,
                                       std::span<const Output> from, std::span<const Expr> args,
                                       std::span<const Output> results) {
  std::vector<bool> needed = find_needed(graph, from, results);
  std::vector<NodeId> map(static_cast<size_t>(graph.num_nodes()), -1);
  auto source = [&](Output o) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == o) return args[i];
    }
    return builder.expr({map[index(o.node)], o.index});
  };
  GraphBuilder::Context before = builder.context();
  // Producers first: a widened node has inputs with higher numbers.
  std::vector<NodeId> stack;
  Status status;
  for (NodeId root = 0; root < graph.num_nodes() && status.ok(); ++root) {
    if (!needed[index(root)] || map[index(root)] >= 0) continue;
    stack.push_back(root);
    while (!stack.empty() && status.ok()) {
      NodeId id = stack.back();
      const Node& node = graph.node(id);
      bool ready = true;
      auto wait_for = [&](NodeId other) {
        if (!needed[index(other)] || map[index(other)] >= 0) return;
        stack.push_back(other);
        ready = false;
      };
      for (Output input : node.inputs()) wait_for(input.node);
      for (NodeId control : node.control_inputs()) wait_for(control);
      if (!ready) continue;
      stack.pop_back();
      if (map[index(id)] >= 0) continue;
      std::vector<Expr> inputs;
      for (Output input : node.inputs()) inputs.push_back(source(input));
      GraphBuilder::Context& now = builder.context();
      now = before;
      for (NodeId control : node.control_inputs()) {
        if (map[index(control)] >= 0) now.control_inputs.push_back(map[index(control)]);
        for (size_t i = 0; i < from.size(); ++i) {
          if (from[i].node == control && args[i].builder() == &builder) {
            now.control_inputs.push_back(GraphBuilder::output(args[i]).node);
          }
        }
      }
      if (!node.device().empty()) now.device = node.device();
      if (node.origin() != 0) now.origin = node.origin();
      std::optional<std::vector<Output>> own = builder.import_inputs(node.op_name(), inputs);
      if (!own) {
        status = builder.status();
        break;
      }
      AttrMap attrs = node.attrs();
      attrs.erase("_class");
      attrs.erase("_clear_after_read");  // the value is read a second time
      Result<NodeId> added = builder.add(node.op_name(), node.name(), *std::move(own), attrs);
      if (added.ok()) {
        map[index(id)] = *added;
      } else {
        status = added.status();
      }
    }
  }
  builder.context() = std::move(before);
  MR_TRY(status);
  std::vector<Expr> out;
  for (Output result : results) out.push_back(source(result));
  return out;
}

Result<std::vector<Expr>> inline_body(GraphBuilder& builder, const FunctionBody& body,
                                      std::span<const Expr> args) {
  std::vector<Output> from, results;
  for (NodeId arg : body.args) from.push_back({arg, 0});
  for (NodeId result : body.results) results.push_back(body.graph->node(result).input(0));
  return inline_graph(builder, *body.graph, from, args, results);
}

}  // namespace millrace
