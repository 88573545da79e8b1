#include "millrace/api/regularizers.h"

namespace millrace {
namespace regularizers {

Regularizer l1(double scale) {
  return [scale](const Scope& scope, Expr w) {
    Expr flat = reshape(w, int32_vector(scope.builder(), {-1}));
    return sum(abs(flat), int32_scalar(scope.builder(), 0)) * scale;
  };
}

Regularizer l2(double scale) {
  return [scale](const Scope&, Expr w) { return call("L2Loss", {w}) * scale; };
}

Regularizer l1_l2(double l1_scale, double l2_scale) {
  return
      [=](const Scope& scope, Expr w) { return l1(l1_scale)(scope, w) + l2(l2_scale)(scope, w); };
}

}  // namespace regularizers

Expr regularization_loss(const Scope& scope, const Regularizer& regularizer,
                         const std::vector<Variable*>& variables, SourceLocation where) {
  Scope inside = scope.sub_scope("regularization");
  return inside.build(where, [&](GraphBuilder& b) {
    std::vector<Expr> parts;
    for (const Variable* v : variables)
      parts.push_back(regularizer(inside, v->read(inside, where)));
    if (parts.empty()) {
      b.fail(invalid_argument("regularization at ", where, ": there are no variables"));
      return Expr();
    }
    return parts.size() == 1 ? parts[0] : call("AddN", parts);
  });
}

}  // namespace millrace
