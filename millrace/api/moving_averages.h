#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/api/variables.h"

namespace millrace {

// Averages of variables over the steps of a training, in which older values count less and less:
// average = decay average + (1 - decay) variable. They often do better than the last values.
//
//   ExponentialMovingAverage averages(vars, 0.999);
//   Operation train = adam.minimize(root, loss);
//   Operation step = averages.apply(root.with_control({train}));
//
// An average is a variable of its own, "<variable>/ExponentialMovingAverage", that begins with the
// variable's first value. The variables must outlive this.
class ExponentialMovingAverage {
 public:
  // With `num_updates`, a scalar variable that counts, the decay is at most (1 + n) / (10 + n): the
  // average follows quickly at the beginning.
  ExponentialMovingAverage(Variables& variables, double decay,
                           const Variable* num_updates = nullptr)
      : variables_(variables), decay_(decay), num_updates_(num_updates) {}

  // Operation that moves the averages of `variables` (empty: of the trainable ones) once.
  Operation apply(const Scope& scope, const std::vector<Variable*>& variables = {},
                  SourceLocation where = SourceLocation::current());
  // Null when it has none.
  Variable* average(const Variable& variable) const;

 private:
  Variable& average_of(const Variable& variable);

  Variables& variables_;
  double decay_;
  const Variable* num_updates_;
  std::vector<std::pair<const Variable*, Variable*>> averages_;
};

}  // namespace millrace
