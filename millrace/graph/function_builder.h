#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "millrace/graph/function.h"
#include "millrace/graph/graph_builder.h"

namespace millrace {

// Builds a function by adding operations to a graph of its own. Tensors of the graphs around it may
// be used as they are: each becomes a parameter (a capture), small constants are copied. The
// function library is that of the graph around. Not thread-safe.
class FunctionBuilder : public GraphBuilder {
 public:
  // `outer` makes the graph that the function is called from, and outlives this.
  explicit FunctionBuilder(GraphBuilder& outer);

  // A parameter, behind those there are. Reference types are allowed.
  Expr add_parameter(std::string_view name, DType type, TensorFacts facts = {});

  struct Capture {
    Expr outer;  // of outer()
    Expr inner;
  };
  // From now on constants of real and complex types are captured, not copied, so that gradients
  // with respect to them find their way.
  void capture_differentiable_constants() { copies_all_ = false; }

  // In the order in which they were first used.
  const std::vector<Capture>& captures() const { return captures_; }
  GraphBuilder& outer() const { return outer_; }

  // A tensor of the enclosing graph, or of one around that, becomes a capture.
  Expr import(Expr e) override;
  int depth() const override { return outer_.depth() + 1; }

  // The function with parameters `arguments` (outputs of parameters and captures, in the order
  // wanted), added to the library under a name made from `name`. Returns that name.
  Result<std::string> finish(std::string_view name, std::span<const Output> arguments,
                             std::span<const Output> results, std::span<const NodeId> effects = {});

 protected:
  // Makes the capture of `e`, a tensor of outer().
  virtual Expr capture(Expr e);

 private:
  explicit FunctionBuilder(GraphBuilder& outer, Ref<Graph> graph);

  Ref<Graph> own_graph_;
  GraphBuilder& outer_;
  std::vector<Capture> captures_;
  int64_t num_parameters_ = 0;
  bool copies_all_ = true;
};

}  // namespace millrace
