#pragma once

#include <functional>
#include <span>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// A program written once for any OpBuilder: its gradients must be the same in a graph and on a
// tape.
struct RuleProgram {
  const char* name;
  std::vector<Shape> shapes;
  Expr (*f)(OpBuilder&, const std::vector<Expr>&);

  // What it is computed at, double.
  std::vector<Tensor> points() const;
};
std::span<const RuleProgram> rule_programs();

// y, its gradients, and those of the sum of squares of its gradients: by whatever computes
// gradients.
using GradientsOf = std::function<Result<std::vector<Gradient>>(Expr, const std::vector<Expr>&)>;
Result<std::vector<Expr>> rule_derivatives(OpBuilder& builder, const RuleProgram& program,
                                           const std::vector<Expr>& xs,
                                           const GradientsOf& gradients_of);
// The same computed by a session, whose passes keep every bit.
Result<std::vector<Tensor>> rule_derivatives_in_graph(const RuleProgram& program);

}  // namespace millrace
