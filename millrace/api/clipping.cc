#include "millrace/api/clipping.h"

namespace millrace {
namespace {

bool check_norm(const Scope& scope, std::string_view name, double norm, SourceLocation where) {
  if (norm > 0) return scope.ok();
  scope.builder().fail(
      invalid_argument(name, " at ", where, ": the norm must be positive, got ", norm));
  return false;
}

// The sum of squares, halved.
Expr half_squares(Expr x) { return call("L2Loss", {x}); }

Expr norm_of(const std::vector<VariableGradient>& gradients, GraphBuilder& b) {
  std::vector<Expr> parts;
  for (const VariableGradient& g : gradients) {
    if (g.gradient.valid()) parts.push_back(half_squares(b.import(g.gradient.values)));
  }
  if (parts.empty()) {
    b.fail(invalid_argument("the global norm of no gradients"));
    return Expr();
  }
  // Variables of several types meet in the first one's.
  for (Expr& part : parts) part = cast(part, parts[0].dtype());
  return sqrt(call("AddN", parts) * 2.0);
}

}  // namespace

Expr clip_by_value(const Scope& scope, Expr x, double low, double high, SourceLocation where) {
  return scope.sub_scope("clip_by_value").build(where, [&](GraphBuilder& b) {
    x = b.import(x);
    Expr below = call("Minimum", {x, constant_like(x, high)});
    return call("Maximum", {below, constant_like(x, low)});
  });
}

Gradient clip_by_value(const Scope& scope, const Gradient& gradient, double low, double high,
                       SourceLocation where) {
  if (!gradient.valid()) return gradient;
  return {clip_by_value(scope, gradient.values, low, high, where), gradient.indices,
          gradient.dense_shape};
}

Expr clip_by_norm(const Scope& scope, Expr x, double norm, SourceLocation where) {
  if (!check_norm(scope, "clip_by_norm", norm, where)) return Expr();
  return scope.sub_scope("clip_by_norm").build(where, [&](GraphBuilder& b) {
    x = b.import(x);
    Expr length = sqrt(half_squares(x) * 2.0);
    return x * norm / call("Maximum", {length, constant_like(x, norm)});
  });
}

Gradient clip_by_norm(const Scope& scope, const Gradient& gradient, double norm,
                      SourceLocation where) {
  if (!gradient.valid()) return gradient;
  return {clip_by_norm(scope, gradient.values, norm, where), gradient.indices,
          gradient.dense_shape};
}

Expr global_norm(const Scope& scope, const std::vector<VariableGradient>& gradients,
                 SourceLocation where) {
  if (!scope.ok()) return Expr();
  return scope.sub_scope("global_norm").build(where, [&](GraphBuilder& b) {
    return norm_of(gradients, b);
  });
}

std::vector<VariableGradient> clip_by_global_norm(const Scope& scope,
                                                  const std::vector<VariableGradient>& gradients,
                                                  double norm, SourceLocation where) {
  if (!check_norm(scope, "clip_by_global_norm", norm, where)) return {};
  return scope.sub_scope("clip_by_global_norm").build(where, [&](GraphBuilder& b) {
    Expr length = norm_of(gradients, b);
    // Infinity minus itself, and what else is not finite, is NaN.
    Expr scale = norm / call("Maximum", {length, constant_like(length, norm)}) + (length - length);
    std::vector<VariableGradient> out = gradients;
    for (VariableGradient& g : out) {
      if (!g.gradient.valid()) continue;
      Expr values = b.import(g.gradient.values);
      g.gradient.values = values * cast(scale, values.dtype());
    }
    return out;
  });
}

}  // namespace millrace
