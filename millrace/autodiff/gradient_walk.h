#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/autodiff/gradients.h"
#include "millrace/autodiff/recompute.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/graph_builder.h"

namespace millrace {

// What one computation of gradients works with.
struct WalkContext {
  // The graph that is differentiated. Nodes are added to it only to save values.
  GraphBuilder& forward;
  // Where the gradients are computed: the same builder, or that of a function inside `forward`, at
  // any depth, so that what it uses of that is captured.
  GraphBuilder& backward;
  const GradientOptions& options;
  // See GradientContext::source().
  std::string source;
  // Null: what the gradients use of the forward pass is kept.
  Recomputation* recomputation = nullptr;

  // A tensor of the graph that is differentiated, for use by the gradients.
  Expr view(Output o) const { return backward.import(forward.expr(o)); }
};

// Walks from the tensors whose gradients are given towards those whose gradients are asked for, in
// the reverse of the order of computation, and calls one rule per node.
class GradientWalk {
 public:
  // From `ys` to `xs`, tensors of `context.forward`. Nothing flows through `stops`.
  GradientWalk(WalkContext context, std::span<const Output> ys, std::span<const Output> xs,
               std::span<const Output> stops = {});

  // Whether a gradient is wanted at `o`, a tensor that some y needs: it is an x, or flows on to
  // one.
  bool flows(Output o) const;
  // A gradient that comes in for `y`; several for one tensor add up.
  void seed(Output y, const Gradient& gradient) { gradients_[key(y)].push_back(gradient); }
  // The gradients of the xs, summed, invalid where there is none.
  Result<std::vector<Gradient>> run();

 private:
  using Key = std::pair<NodeId, int32_t>;
  static Key key(Output o) { return {o.node, o.index}; }

  Status differentiate(const Node& node);
  Status call_rule(const Node& node, std::vector<Gradient> output_gradients);
  Gradient take(Output o);
  // The sum of gradients of `o` that are computed where their operations are: those of one device
  // there, all of them where `o` is.
  Gradient sum_in_place(Output o, const std::vector<Gradient>& gradients);
  // The operation that a gradient was made for, and is colocated with; null where that is not
  // known.
  const Node* differentiated(const Gradient& gradient) const;
  std::string path_through(NodeId id) const;
  Status annotate(const Node& node, const Status& status) const;
  // Makes each of the gradients (of one operation) wait for all of them.
  Status gate_all(std::vector<Gradient>& gradients);
  const Graph& graph() const { return context_.forward.graph(); }

  WalkContext context_;
  std::map<Key, std::vector<Gradient>> gradients_;
  std::vector<Output> xs_;
  std::vector<NodeId> roots_;  // of the ys
  // What the ys need and gradients flow through, producers first. Nothing else has a say in the
  // order, in which gradients are added up: a tape (eager/tape.h) has to come to the same sums.
  std::vector<NodeId> order_;
  std::map<Key, bool> is_x_, is_stop_;
  std::vector<bool> dependent_;  // by node: some x is upstream
};

// The gradients of a node's inputs where `wanted`, from those of its outputs (invalid: none), for
// nodes that run functions. The results are the backward builder's.
using InputGradients = std::vector<Gradient>;
Result<InputGradients> branch_gradients(const WalkContext& context, const Node& node,
                                        const std::vector<Gradient>& output_gradients,
                                        const std::vector<bool>& wanted);
Result<InputGradients> while_gradients(const WalkContext& context, const Node& node,
                                       const std::vector<Gradient>& output_gradients,
                                       const std::vector<bool>& wanted);
// For calls whose function cannot be widened: runs the function's gradient_function().
Result<InputGradients> call_gradients(const WalkContext& context, const Node& node,
                                      const FunctionAttr& function,
                                      const std::vector<Gradient>& output_gradients);

}  // namespace millrace
