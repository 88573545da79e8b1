#include "millrace/api/moving_averages.h"

namespace millrace {

Variable* ExponentialMovingAverage::average(const Variable& variable) const {
  for (const auto& [known, average] : averages_) {
    if (known == &variable) return average;
  }
  return nullptr;
}

Variable& ExponentialMovingAverage::average_of(const Variable& variable) {
  if (Variable* known = average(variable)) return *known;
  Variable& made = variables_.create(
      variables_.root(), str_cat(variable.name, "/ExponentialMovingAverage"), variable.shape,
      variable.dtype,
      [&](const Scope&, const Shape&, DType, Seed) { return variable.initial_value; },
      {.trainable = false});
  averages_.emplace_back(&variable, &made);
  return made;
}

Operation ExponentialMovingAverage::apply(const Scope& scope,
                                          const std::vector<Variable*>& variables,
                                          SourceLocation where) {
  Scope inside = scope.sub_scope("ExponentialMovingAverage");
  return inside.build(where, [&](GraphBuilder&) {
    Expr rest = inside.constant(1 - decay_);
    if (num_updates_ != nullptr) {
      Expr n = cast(num_updates_->read(inside, where), DType::kDouble);
      rest = call("Maximum", {rest, 1.0 - (n + 1.0) / (n + 10.0)});
    }
    std::vector<Operation> moved;
    for (const Variable* v : variables.empty() ? variables_.trainable() : variables) {
      const Variable& average = average_of(*v);
      Expr gap = v->read(inside, where) - average.read(inside, where);
      moved.push_back(average.assign_add(inside, gap * cast(rest, v->dtype), where));
    }
    return inside.with_name("apply").with_control(moved).add("NoOp", {}, {}, where);
  });
}

}  // namespace millrace
