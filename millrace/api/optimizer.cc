#include "millrace/api/optimizer.h"

#include <algorithm>

namespace millrace {
namespace {

// Each row once, with the sum of what came for it.
Gradient sum_equal_rows(const Gradient& g) {
  std::vector<Expr> unique = call_multi("Unique", {g.indices});
  if (unique.size() != 2) return {};
  Expr rows = call("UnsortedSegmentSum", {g.values, unique[1], size_of(unique[0])});
  return {rows, unique[0], g.dense_shape};
}

}  // namespace

Expr LearningRate::as(const Scope& scope, DType dtype) const {
  return cast(tensor_.valid() ? scope.builder().import(tensor_) : scope.constant(value_), dtype);
}

Optimizer::Optimizer(Variables& variables, std::string op, LearningRate rate,
                     std::vector<Slot> slots, AttrMap attrs)
    : variables_(variables),
      name_(op),
      op_(std::move(op)),
      rate_(rate),
      slots_(std::move(slots)),
      attrs_(std::move(attrs)) {}

std::vector<std::string> Optimizer::slot_names() const {
  std::vector<std::string> out;
  for (const Slot& slot : slots_) out.push_back(slot.name);
  return out;
}

Variable* Optimizer::get_slot(const Variable& variable, std::string_view slot) const {
  for (const auto& [known, slots] : made_) {
    if (known != &variable) continue;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].name == slot) return slots[i];
    }
  }
  return nullptr;
}

const std::vector<Variable*>& Optimizer::slots_of(const Variable& variable) {
  for (const auto& [known, slots] : made_) {
    if (known == &variable) return slots;
  }
  const Scope& root = variables_.root();
  Scope beside = root;
  if (root.ok()) {
    beside =
        root.with_device(root.graph()->node(GraphBuilder::output(variable.handle).node).device());
  }
  std::vector<Variable*> slots;
  for (const Slot& slot : slots_) {
    slots.push_back(&variables_.create(beside, str_cat(variable.name, "/", name_), variable.shape,
                                       variable.dtype, initializers::constant(slot.initial),
                                       {.trainable = false}));
  }
  made_.emplace_back(&variable, std::move(slots));
  return made_.back().second;
}

Variable& Optimizer::own_variable(std::string_view name, DType dtype, double initial) {
  for (const auto& [known, variable] : own_) {
    if (known == name) return *variable;
  }
  Variable& made = variables_.create(variables_.root(), name, {}, dtype,
                                     initializers::constant(initial), {.trainable = false});
  own_.emplace_back(name, &made);
  return made;
}

Expr Optimizer::number(const Scope& scope, double value, DType dtype) {
  return cast(scope.constant(value), dtype);
}

Expr Optimizer::power(const Scope& scope, std::string_view name, double beta, DType dtype) {
  const size_t known = own_.size();
  const DType kept = dtype == DType::kDouble ? dtype : DType::kFloat;
  Variable& v = own_variable(name, kept, beta);
  if (own_.size() > known) powers_.push_back({&v, beta});
  return cast(v.read(scope), dtype);
}

std::vector<Operation> Optimizer::finish(const Scope& scope) {
  std::vector<Operation> out;
  for (const Power& p : powers_) {
    out.push_back(p.variable->assign(scope, p.variable->read(scope) * p.beta));
  }
  return out;
}

Expr Optimizer::scalar(std::string_view name, DType dtype) const {
  for (const auto& [type, scalars] : scalars_) {
    for (const auto& [known, value] : scalars) {
      if (type == dtype && known == name) return value;
    }
  }
  return Expr();
}

Operation Optimizer::apply(const Scope& scope, std::string_view op, const Variable& variable,
                           Expr gradient, Expr indices) {
  const OpDef* def = scope.graph()->registry().find(op);
  if (def == nullptr) {
    scope.builder().fail(internal("there is no op ", op));
    return {};
  }
  std::vector<Expr> inputs = {variable.handle};
  for (const Variable* slot : slots_of(variable)) inputs.push_back(slot->handle);
  for (size_t i = inputs.size(); i < def->inputs.size(); ++i) {
    const std::string& input = def->inputs[i].name;
    Expr value = scalar(input, variable.dtype);
    if (!value.valid()) value = input == "indices" ? indices : gradient;
    inputs.push_back(value);
  }
  return scope.add(op, std::move(inputs), attrs_);
}

Operation Optimizer::apply_rows(const Scope& scope, Variable& variable, Expr rows, Expr indices) {
  return apply(scope, str_cat("ResourceSparseApply", op_), variable, rows, indices);
}

std::vector<VariableGradient> Optimizer::compute_gradients(const Scope& scope, Expr loss,
                                                           const std::vector<Variable*>& variables,
                                                           const GradientOptions& options,
                                                           SourceLocation where) {
  const std::vector<Variable*> chosen = variables.empty() ? variables_.trainable() : variables;
  if (!scope.ok()) return {};
  GraphBuilder& builder = scope.builder();
  std::vector<Expr> xs;
  for (const Variable* v : chosen) xs.push_back(builder.import(v->handle));
  loss = builder.import(loss);
  if (!scope.ok()) return {};
  Result<std::vector<Gradient>> found = scope.build(where, [&](GraphBuilder& b) {
    return gradients(b, std::span<const Expr>(&loss, 1), xs, {}, options);
  });
  if (!found.ok()) {
    builder.fail(found.status());
    return {};
  }
  std::vector<VariableGradient> out;
  for (size_t i = 0; i < chosen.size(); ++i) out.push_back({(*found)[i], chosen[i]});
  return out;
}

Operation Optimizer::apply_gradients(const Scope& scope,
                                     const std::vector<VariableGradient>& gradients,
                                     Variable* global_step, SourceLocation where) {
  return apply_after(scope, {}, gradients, global_step, where);
}

Operation Optimizer::apply_after(const Scope& scope, std::vector<Operation> computed,
                                 const std::vector<VariableGradient>& gradients,
                                 Variable* global_step, SourceLocation where) {
  if (!scope.ok()) return {};
  GraphBuilder& builder = scope.builder();
  Scope inside = scope.sub_scope(name_);
  scalars_.clear();
  for (const VariableGradient& g : gradients) {
    if (!g.gradient.valid()) continue;
    if (g.variable == nullptr || !g.variable->valid()) {
      builder.fail(invalid_argument(name_, " at ", where, ": a gradient without a variable"));
      return {};
    }
    computed.push_back(scope.operation_of(builder.import(g.gradient.values)));
    const DType dtype = g.variable->dtype;
    if (std::none_of(scalars_.begin(), scalars_.end(),
                     [&](const auto& known) { return known.first == dtype; })) {
      scalars_.emplace_back(
          dtype, inside.build(where, [&](GraphBuilder&) { return scalars(inside, dtype); }));
    }
  }
  if (scalars_.empty()) {
    builder.fail(invalid_argument(name_, " at ", where, ": none of the ", gradients.size(),
                                  " variables has a gradient"));
    return {};
  }
  Operation ready = inside.with_name("ready").with_control(computed).add("NoOp", {}, {}, where);
  Scope after = inside.with_control({ready});
  return after.build(where, [&](GraphBuilder&) {
    std::vector<Operation> applied;
    for (const VariableGradient& g : gradients) {
      if (!g.gradient.valid()) continue;
      Scope at = after.colocated_with(builder.import(g.variable->handle));
      if (g.gradient.is_slices()) {
        Gradient rows = linear() ? g.gradient : sum_equal_rows(g.gradient);
        applied.push_back(apply_rows(at, *g.variable, rows.values, rows.indices));
      } else {
        applied.push_back(apply(at, str_cat("ResourceApply", op_), *g.variable, g.gradient.values));
      }
    }
    Scope last = inside.with_control(applied);
    std::vector<Operation> all = last.build(where, [&](GraphBuilder&) { return finish(last); });
    if (global_step != nullptr) {
      Expr one = cast(last.constant(int64_t{1}), global_step->dtype);
      all.push_back(global_step->assign_add(last, one, where));
    }
    all.insert(all.end(), applied.begin(), applied.end());
    return inside.with_name("apply").with_control(all).add("NoOp", {}, {}, where);
  });
}

Operation Optimizer::minimize(const Scope& scope, Expr loss, Variable* global_step,
                              const std::vector<Variable*>& variables, SourceLocation where) {
  std::vector<VariableGradient> found = compute_gradients(scope, loss, variables, {}, where);
  if (!scope.ok()) return {};
  Operation computed = scope.operation_of(scope.builder().import(loss));
  Operation applied = apply_after(scope, {computed}, found, global_step, where);
  if (variables_.updates().empty()) return applied;
  return scope.with_name("train")
      .with_control(variables_.updates())
      .with_control({applied})
      .add("NoOp", {}, {}, where);
}

}  // namespace millrace
