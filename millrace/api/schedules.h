#pragma once

#include <vector>

#include "millrace/api/scope.h"

namespace millrace {

// Learning rates that change with the training step, as float scalars. `step` is an integer or
// floating scalar, often global_step(vars).read(scope); the arithmetic is in double. A number of
// steps that is not positive is INVALID_ARGUMENT.
//
//   Variable& step = global_step(vars);
//   Expr rate = exponential_decay(root, 0.1, step.read(root), 1000, 0.96);
//   Operation train = GradientDescent(vars, rate).minimize(root, loss, &step);

// rate * decay^(step / decay_steps). Staircase: the quotient is rounded down.
Expr exponential_decay(const Scope& scope, double rate, Expr step, double decay_steps, double decay,
                       bool staircase = false, SourceLocation where = SourceLocation::current());
// rate / (1 + decay * step / decay_steps)
Expr inverse_time_decay(const Scope& scope, double rate, Expr step, double decay_steps,
                        double decay, bool staircase = false,
                        SourceLocation where = SourceLocation::current());
// rate * exp(-decay * step / decay_steps)
Expr natural_exp_decay(const Scope& scope, double rate, Expr step, double decay_steps, double decay,
                       bool staircase = false, SourceLocation where = SourceLocation::current());

struct PolynomialDecay {
  double end_rate = 1e-4;
  double power = 1;
  // After decay_steps begins again, twice as long, then three times; else stays at end_rate.
  bool cycle = false;
};
// (rate - end_rate) * (1 - step / decay_steps)^power + end_rate
Expr polynomial_decay(const Scope& scope, double rate, Expr step, double decay_steps,
                      const PolynomialDecay& options = {},
                      SourceLocation where = SourceLocation::current());

// values[0] up to and at step boundaries[0], values[1] up to and at boundaries[1], and so on; there
// is one value more than boundaries, which increase.
Expr piecewise_constant(const Scope& scope, Expr step, const std::vector<double>& boundaries,
                        const std::vector<double>& values,
                        SourceLocation where = SourceLocation::current());

// rate * ((1 - alpha) * (1 + cos(pi * step / decay_steps)) / 2 + alpha); rate * alpha after that.
Expr cosine_decay(const Scope& scope, double rate, Expr step, double decay_steps, double alpha = 0,
                  SourceLocation where = SourceLocation::current());

// `rate` (a scalar) times (step + 1) / warmup_steps, and all of it from step warmup_steps - 1 on.
Expr warmup(const Scope& scope, Expr rate, Expr step, double warmup_steps,
            SourceLocation where = SourceLocation::current());

}  // namespace millrace
