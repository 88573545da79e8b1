#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "millrace/api/client_session.h"

namespace millrace {

using Exprs = std::vector<Expr>;

// A computation whose derivatives are compared: of one tensor from others, all double.
using ScalarProgram = std::function<Expr(const Scope&, const Exprs&)>;

struct Derivatives {
  // The sum of the program's elements, then for each order, and each x, its derivative: of the sum
  // first, then of the sum of squares of the derivatives before.
  std::vector<Tensor> values;
  int nodes = 0;  // of the graph
};

// Builds the program with the xs fed, and its derivatives up to `order`, and runs them.
Result<Derivatives> evaluate_derivatives(const std::vector<Tensor>& xs,
                                         const ScalarProgram& program, int order,
                                         bool recompute = false,
                                         const SessionOptions& options = {});

// Reports where they differ by more than 1e-6.
void expect_same_derivatives(const Derivatives& a, const Derivatives& b, std::string_view what);

}  // namespace millrace
