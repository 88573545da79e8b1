#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/runtime/executor_testing.h"

namespace millrace {

// A graph whose nodes and tensors are known by their names, as signatures want them.
class NamedGraph {
 public:
  void on(std::string device) { graph_.builder().context().device = std::move(device); }
  void after(std::vector<NodeId> nodes) {
    graph_.builder().context().control_inputs = std::move(nodes);
  }
  std::vector<Expr> add_all(std::string_view op, std::vector<Expr> inputs, AttrMap attrs = {}) {
    std::vector<Expr> outputs = graph_.builder().emit(op, std::move(inputs), std::move(attrs));
    MR_CHECK_OK(graph_.builder().status());
    return outputs;
  }
  Expr add(std::string_view op, std::vector<Expr> inputs, AttrMap attrs = {}) {
    const std::vector<Expr> outputs = add_all(op, std::move(inputs), std::move(attrs));
    return outputs.empty() ? Expr() : outputs[0];
  }
  NodeId add_node(std::string_view op, std::vector<Expr> inputs, AttrMap attrs = {}) {
    std::vector<Output> outputs;
    for (const Expr& e : inputs) outputs.push_back(GraphBuilder::output(e));
    return graph_.builder().add(op, "", std::move(outputs), std::move(attrs)).value();
  }
  Expr constant(const Tensor& value) { return graph_.builder().constant(value); }
  std::string name(Expr e) { return graph_.graph().output_name(GraphBuilder::output(e)); }
  std::string name(NodeId node) { return std::string(graph_.graph().node(node).name()); }
  static NodeId node(Expr e) { return GraphBuilder::output(e).node; }
  Ref<Graph> graph() { return Ref<Graph>(&graph_.graph()); }

 private:
  TestGraph graph_;
};

}  // namespace millrace
