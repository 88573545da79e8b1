#include "millrace/api/schedules.h"

#include <numbers>

namespace millrace {
namespace {

Expr minimum(Expr a, Expr b) { return call("Minimum", {a, b}); }
Expr maximum(Expr a, Expr b) { return call("Maximum", {a, b}); }
Expr round_down(Expr x) { return call("Floor", {x}); }
Expr round_up(Expr x) { return -round_down(-x); }

// Builds a schedule from the step as a double.
template <class F>
Expr schedule(const Scope& scope, std::string_view name, Expr step, double num_steps,
              SourceLocation where, F formula) {
  if (!(num_steps > 0)) {
    scope.builder().fail(invalid_argument(
        name, " at ", where, ": the number of steps must be positive, got ", num_steps));
    return Expr();
  }
  return scope.sub_scope(name).build(where, [&](GraphBuilder& b) {
    return cast(formula(b, cast(b.import(step), DType::kDouble)), DType::kFloat);
  });
}

// step / num_steps
Expr periods(Expr step, double num_steps, bool staircase) {
  Expr p = step / num_steps;
  return staircase ? round_down(p) : p;
}

}  // namespace

Expr exponential_decay(const Scope& scope, double rate, Expr step, double decay_steps, double decay,
                       bool staircase, SourceLocation where) {
  return schedule(scope, "exponential_decay", step, decay_steps, where, [&](GraphBuilder&, Expr t) {
    return rate * pow(constant_like(t, decay), periods(t, decay_steps, staircase));
  });
}

Expr inverse_time_decay(const Scope& scope, double rate, Expr step, double decay_steps,
                        double decay, bool staircase, SourceLocation where) {
  return schedule(scope, "inverse_time_decay", step, decay_steps, where,
                  [&](GraphBuilder&, Expr t) {
                    return rate / (1.0 + decay * periods(t, decay_steps, staircase));
                  });
}

Expr natural_exp_decay(const Scope& scope, double rate, Expr step, double decay_steps, double decay,
                       bool staircase, SourceLocation where) {
  return schedule(scope, "natural_exp_decay", step, decay_steps, where, [&](GraphBuilder&, Expr t) {
    return rate * exp(-decay * periods(t, decay_steps, staircase));
  });
}

Expr polynomial_decay(const Scope& scope, double rate, Expr step, double decay_steps,
                      const PolynomialDecay& options, SourceLocation where) {
  return schedule(scope, "polynomial_decay", step, decay_steps, where, [&](GraphBuilder&, Expr t) {
    Expr period = constant_like(t, decay_steps);
    if (options.cycle) {
      period = period * maximum(round_up(t / decay_steps), constant_like(t, 1));
    } else {
      t = minimum(t, period);
    }
    Expr left = pow(1.0 - t / period, constant_like(t, options.power));
    return (rate - options.end_rate) * left + options.end_rate;
  });
}

Expr piecewise_constant(const Scope& scope, Expr step, const std::vector<double>& boundaries,
                        const std::vector<double>& values, SourceLocation where) {
  bool increasing = true;
  for (size_t i = 1; i < boundaries.size(); ++i) increasing &= boundaries[i - 1] < boundaries[i];
  if (!increasing || values.size() != boundaries.size() + 1) {
    scope.builder().fail(invalid_argument(
        "piecewise_constant at ", where,
        ": expected increasing boundaries and one value more than there are of them, got ",
        boundaries.size(), " boundaries and ", values.size(), " values"));
    return Expr();
  }
  return schedule(scope, "piecewise_constant", step, 1, where, [&](GraphBuilder& b, Expr t) {
    Expr rate = b.constant(Tensor::scalar(values.back()));
    for (size_t i = boundaries.size(); i-- > 0;) {
      rate =
          select(less_equal(t, constant_like(t, boundaries[i])), constant_like(t, values[i]), rate);
    }
    return rate;
  });
}

Expr cosine_decay(const Scope& scope, double rate, Expr step, double decay_steps, double alpha,
                  SourceLocation where) {
  return schedule(scope, "cosine_decay", step, decay_steps, where, [&](GraphBuilder&, Expr t) {
    Expr done = minimum(t / decay_steps, constant_like(t, 1));
    Expr wave = (1.0 + cos(std::numbers::pi * done)) / 2.0;
    return rate * ((1 - alpha) * wave + alpha);
  });
}

Expr warmup(const Scope& scope, Expr rate, Expr step, double warmup_steps, SourceLocation where) {
  return schedule(scope, "warmup", step, warmup_steps, where, [&](GraphBuilder& b, Expr t) {
    Expr share = minimum((t + 1.0) / warmup_steps, constant_like(t, 1));
    return cast(b.import(rate), DType::kDouble) * share;
  });
}

}  // namespace millrace
