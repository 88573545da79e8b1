#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/expr.h"
#include "millrace/graph/graph.h"

namespace millrace {

// Adds nodes to a graph as a client does: under name scopes, with default device, control inputs,
// colocation and origin, and with type and number attributes worked out from the inputs. The
// OpBuilder of graphs: gradient rules and the C++ client both write through it. Not thread-safe.
class GraphBuilder : public OpBuilder {
 public:
  // The graph must outlive the builder.
  explicit GraphBuilder(Graph& graph) : graph_(graph) {}

  Graph& graph() const { return graph_; }

  // Settings for the nodes that follow. The caller restores what it changes.
  struct Context {
    std::string scope;  // "a/b/", or empty
    std::string device;
    std::vector<NodeId> control_inputs;
    std::vector<std::string> colocate_with;  // node names
    OriginId origin = 0;
    // Node attributes given to each node, such as "_grad_of".
    AttrMap attrs;
  };
  Context& context() { return context_; }

  // Adds `op` under a unique name made from the scope and `name` (the op's own name when empty).
  // Type and number attributes follow from the inputs; the rest come from `attrs` and the defaults.
  Result<NodeId> add(std::string_view op, std::string_view name, std::vector<Output> inputs,
                     AttrMap attrs = {});

  // OpBuilder: an Expr's id is its node. The dtype of a reference is that of its value.
  std::vector<Expr> emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) override;
  Expr constant(const Tensor& value) override;
  DType dtype(Expr e) const override;
  PartialShape shape(Expr e) const override;
  const Tensor* constant_value(Expr e) const override;
  const Status& status() const override { return status_; }
  void fail(Status error) override;
  // status(), which is OK afterwards: for clients that report an error and go on.
  Status take_status();

  // The tensor as one of this builder's graph; invalid, with status() saying why, when it is of
  // another one. A FunctionBuilder makes parameters of tensors from the graphs around it.
  virtual Expr import(Expr e);
  // The inputs of an operation to be made, imported; nothing, with status() naming `op` and the
  // input, when one cannot be.
  std::optional<std::vector<Output>> import_inputs(std::string_view op,
                                                   std::span<const Expr> inputs);

  Expr expr(Output output) { return Expr(this, output.node, output.index); }
  static Output output(Expr e) { return {static_cast<NodeId>(e.id()), e.index()}; }

 private:
  Graph& graph_;
  Context context_;
  Status status_;
};

// "inputs: 'x:0' float32 [2,3], 'y:0' int32 []": for errors about what an operation is given.
std::string describe_inputs(const Graph& graph, std::span<const Output> inputs);
// The name that users know a type by: as dtype_name(), but "float32", "float64", "float16".
std::string user_type_name(DType dtype);

// The values of the type, type-list and number attributes of `op` that follow from the types of its
// inputs (given flat), added to `attrs` where absent. A list argument takes what the others leave;
// with several list arguments, `attrs` must hold the lengths. INVALID_ARGUMENT when the types do
// not fit.
Status infer_type_attrs(const OpDef& op, std::span<const DType> input_types, AttrMap& attrs);

}  // namespace millrace
