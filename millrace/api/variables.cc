#include "millrace/api/variables.h"

namespace millrace {
namespace {

GraphBuilder::Context settings_of(const Scope& scope, SourceLocation where) {
  return scope.build(where, [](GraphBuilder& b) { return b.context(); });
}

}  // namespace

Expr Variable::read(const Scope& scope, SourceLocation where) const {
  return scope.output(scope.add("ReadVariableOp", {handle}, {{"dtype", dtype}}, where), 0);
}

Operation Variable::assign(const Scope& scope, Expr value, SourceLocation where) const {
  return scope.add("AssignVariableOp", {handle, value}, {}, where);
}

Operation Variable::assign_add(const Scope& scope, Expr value, SourceLocation where) const {
  return scope.add("AssignAddVariableOp", {handle, value}, {}, where);
}

Variable& Variables::fail(const Scope& scope, const Status& status) {
  root_.builder().fail(status);
  scope.builder().fail(status);
  return none_;
}

Variable* Variables::find(std::string_view name) {
  for (Variable& v : variables_) {
    if (v.name == name) return &v;
  }
  return nullptr;
}

Variable& Variables::get(const Scope& scope, std::string_view name, const Shape& shape, DType dtype,
                         const Initializer& initializer, const VariableOptions& options,
                         SourceLocation where) {
  std::string full = str_cat(settings_of(scope, where).scope, name);
  Variable* known = find(full);
  if (known == nullptr) {
    return add(scope, std::move(full), shape, dtype, initializer, options, where);
  }
  if (known->shape == shape && known->dtype == dtype) return *known;
  return fail(scope,
              invalid_argument("variable \"", full, "\" is ", known->dtype, " ", known->shape,
                               ", and is asked for as ", dtype, " ", shape, " at ", where));
}

Variable& Variables::create(const Scope& scope, std::string_view name, const Shape& shape,
                            DType dtype, const Initializer& initializer,
                            const VariableOptions& options, SourceLocation where) {
  const std::string full = str_cat(settings_of(scope, where).scope, name);
  std::string unique = full;
  for (int n = 1; find(unique) != nullptr; ++n) unique = str_cat(full, "_", n);
  return add(scope, std::move(unique), shape, dtype, initializer, options, where);
}

Variable& Variables::add(const Scope& scope, std::string name, const Shape& shape, DType dtype,
                         const Initializer& initializer, const VariableOptions& options,
                         SourceLocation where) {
  if (!root_.ok()) return fail(scope, root_.status());
  const GraphBuilder::Context settings = settings_of(scope, where);
  Scope at = root_.with_device(settings.device);
  // with_name() and sub_scope() add the root's own prefix again.
  const std::string prefix = settings_of(root_, where).scope;
  std::string_view below = name;
  if (below.starts_with(prefix)) below.remove_prefix(prefix.size());

  Variable v = {.name = name, .shape = shape, .dtype = dtype, .trainable = options.trainable};
  v.handle = at.output(
      at.with_name(below).add(
          "VarHandleOp", {},
          {{"dtype", dtype}, {"shape", PartialShape(shape)}, {"shared_name", name}}, where),
      0);
  Scope inside = at.sub_scope(str_cat(below, "/Initializer"));
  v.initial_value = inside.build(where, [&](GraphBuilder&) {
    return initializer(inside, shape, dtype, derive_seed(seed_, name));
  });
  v.initializer = v.assign(inside.with_name("Assign"), v.initial_value, where);
  if (!root_.ok()) return fail(scope, root_.status());
  variables_.push_back(std::move(v));
  return variables_.back();
}

std::vector<Variable*> Variables::all() {
  std::vector<Variable*> out;
  for (Variable& v : variables_) out.push_back(&v);
  return out;
}

std::vector<Variable*> Variables::trainable() {
  std::vector<Variable*> out;
  for (Variable& v : variables_) {
    if (v.trainable) out.push_back(&v);
  }
  return out;
}

Operation Variables::initialize() {
  if (initialize_.valid() && num_initialized_ == variables_.size()) return initialize_;
  std::vector<Operation> initializers;
  for (const Variable& v : variables_) initializers.push_back(v.initializer);
  initialize_ = root_.with_name("initialize").with_control(initializers).add("NoOp", {}, {});
  num_initialized_ = variables_.size();
  return initialize_;
}

Variable& global_step(Variables& variables) {
  return variables.get(variables.root(), "global_step", {}, DType::kInt64, initializers::zeros(),
                       {.trainable = false});
}

}  // namespace millrace
