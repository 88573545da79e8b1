// Variables that travel along edges as references: an op that takes one may change it in place.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

// What the resource manager keeps: the cell, which edges share.
class ReferenceVariable : public Resource {
 public:
  static constexpr std::string_view kTypeName = "ReferenceVariable";
  explicit ReferenceVariable(Ref<VariableCell> cell) : cell_(std::move(cell)) {}

  const Ref<VariableCell>& cell() const { return cell_; }
  std::string describe() const override {
    const Tensor now = cell_->read();
    if (now.valid()) return str_cat("Variable ", now.dtype(), " ", now.shape());
    return str_cat("Variable ", cell_->dtype(), " ", cell_->shape(), " (uninitialized)");
  }

 private:
  const Ref<VariableCell> cell_;
};

// A reference variable of one step.
class StepVariable : public ReferenceVariable {
 public:
  static constexpr std::string_view kTypeName = "TemporaryVariable";
  using ReferenceVariable::ReferenceVariable;
};

Status declared_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  c.set_output(0, shape);
  return ok_status();
}

// In graphs of the first version a scalar means "not given".
PartialShape shape_of_old_variable(PartialShape shape) {
  return shape.rank() == 0 ? PartialShape::unknown() : std::move(shape);
}

Status old_declared_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape declared, c.attr<PartialShape>("shape"));
  c.set_output(0, shape_of_old_variable(std::move(declared)));
  return ok_status();
}

class VariableKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(PartialShape shape, node.attr<PartialShape>("shape"));
    return make_with(node, std::move(shape));
  }
  static Result<std::unique_ptr<Kernel>> make_old(const KernelNode& node) {
    MR_TRY_ASSIGN(PartialShape declared, node.attr<PartialShape>("shape"));
    return make_with(node, shape_of_old_variable(std::move(declared)));
  }
  VariableKernel(StateName name, DType dtype, PartialShape shape)
      : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {}

  Status compute(KernelContext& ctx) const override {
    const std::string& name = name_.shared_name;
    MR_TRY_ASSIGN(
        Ref<ReferenceVariable> variable,
        ctx.resources().lookup_or_create<ReferenceVariable>(
            container_or_default(name_.container), name, [&]() -> Result<Ref<ReferenceVariable>> {
              return make_ref<ReferenceVariable>(make_ref<VariableCell>(name, dtype_, shape_));
            }));
    const VariableCell& cell = *variable->cell();
    if (cell.dtype() != dtype_ || !cell.shape().compatible(shape_)) {
      return invalid_argument("variable ", name, " is shared and was made as ", cell.dtype(), " ",
                              cell.shape(), ", this node expects ", dtype_, " ", shape_);
    }
    ctx.set_output_ref(0, variable->cell());
    return ok_status();
  }

 private:
  static Result<std::unique_ptr<Kernel>> make_with(const KernelNode& node, PartialShape shape) {
    MR_TRY_ASSIGN(StateName name, StateName::make(node));
    if (name.shared_name.empty()) name.shared_name = node.name;
    MR_TRY_ASSIGN(DType dtype, node.attr<DType>("dtype"));
    return std::make_unique<VariableKernel>(std::move(name), dtype, std::move(shape));
  }

  const StateName name_;
  const DType dtype_;
  const PartialShape shape_;
};

// The name of a step's variable: each iteration of a loop has its own.
std::string step_variable_name(const KernelContext& ctx, std::string_view name) {
  return str_cat(name, "/", ctx.frame(), ":", ctx.iteration());
}

Status temporary_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape declared, c.attr<PartialShape>("shape"));
  MR_TRY_ASSIGN(const Shape shape, declared.to_shape());
  c.set_output(0, shape);
  return ok_status();
}

class TemporaryVariable : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(PartialShape declared, node.attr<PartialShape>("shape"));
    MR_TRY_ASSIGN(Shape shape, declared.to_shape());
    MR_TRY_ASSIGN(DType dtype, node.attr<DType>("dtype"));
    MR_TRY_ASSIGN(std::string name, node.attr<std::string>("var_name"));
    if (name.empty()) name = node.name;
    return std::make_unique<TemporaryVariable>(std::move(name), dtype, std::move(shape));
  }
  TemporaryVariable(std::string name, DType dtype, Shape shape)
      : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {}

  Status compute(KernelContext& ctx) const override {
    Ref<VariableCell> cell = make_ref<VariableCell>(name_, dtype_, shape_);
    MR_TRY_ASSIGN(Tensor zeros, Tensor::zeros(dtype_, shape_));
    {
      MutexLock lock(cell->mu);
      cell->tensor = std::move(zeros);
    }
    MR_TRY(ctx.resources().create<StepVariable>(
        ctx.step().container(), step_variable_name(ctx, name_), make_ref<StepVariable>(cell)));
    ctx.set_output_ref(0, std::move(cell));
    return ok_status();
  }

 private:
  const std::string name_;
  const DType dtype_;
  const Shape shape_;
};

class DestroyTemporaryVariable : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string name, node.attr<std::string>("var_name"));
    return std::make_unique<DestroyTemporaryVariable>(std::move(name));
  }
  explicit DestroyTemporaryVariable(std::string name) : name_(std::move(name)) {}

  Status compute(KernelContext& ctx) const override {
    const std::string name = step_variable_name(ctx, name_);
    const std::string container = ctx.step().container();
    MR_TRY_ASSIGN(Ref<StepVariable> variable,
                  ctx.resources().lookup<StepVariable>(container, name));
    RefCell& cell = ctx.input_ref(0);
    if (variable->cell().get() != &cell) {
      return invalid_argument("var_name '", name_, "' is not the variable in input 0, which is '",
                              cell.name, "'");
    }
    MR_TRY(ctx.resources().remove<StepVariable>(container, name));
    MutexLock lock(cell.mu);
    ctx.set_output(0, std::move(cell.tensor));
    cell.tensor = Tensor();
    return ok_status();
  }

 private:
  const std::string name_;
};

Status is_initialized(KernelContext& ctx) {
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
  out->mutable_data<bool>()[0] = ctx.input_ref(0).read().valid();
  return ok_status();
}

}  // namespace

void register_reference_variables(Registry& registry) {
  mark_reach({"VariableV2", "Variable"}, Reach::kState);
  const std::vector<OpSpec::Attr> attrs = {
      {"shape", "shape", "What every value must have."},
      {"container", "string = ''", "Where it is kept; empty: the session's default container."},
      {"shared_name", "string = ''", "Nodes that give the same name share it; empty: the node's."}};
  const OpTraits traits = {.stateful = true, .owns_state = true, .cannot_differentiate = true};
  registry.add({.name = "VariableV2",
                .doc = "A reference to a variable, which keeps its value from run to run.",
                .outputs = {{"ref", "ref(dtype)"}},
                .types = {{"dtype", {}}},
                .attrs = attrs,
                .traits = traits,
                .shape = declared_shape});
  registry.kernel<VariableKernel>("VariableV2", DeviceKind::kAny);
  registry.add({.name = "Variable",
                .doc = "VariableV2 in graphs of the first version: a scalar shape says nothing.",
                .outputs = {{"ref", "ref(dtype)"}},
                .types = {{"dtype", {}}},
                .attrs = attrs,
                .traits = traits,
                .shape = old_declared_shape});
  registry.kernel(
      {.op = "Variable", .device = DeviceKind::kAny, .factory = &VariableKernel::make_old});

  registry.add({.name = "TemporaryVariable",
                .doc = "A reference to a variable of zeros that lives for one step at most.",
                .outputs = {{"ref", "ref(dtype)"}},
                .types = {{"dtype", {}}},
                .attrs = {{"shape", "shape"},
                          {"var_name", "string = ''", "Its name in the step; empty: the node's."}},
                .traits = {.stateful = true, .step_state = true, .cannot_differentiate = true},
                .shape = temporary_shape});
  registry.kernel<TemporaryVariable>("TemporaryVariable", DeviceKind::kCpu);
  registry.add({.name = "DestroyTemporaryVariable",
                .doc = "The last value of a TemporaryVariable, which ends here.",
                .inputs = {{"ref", "ref(T)"}},
                .outputs = {{"value", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"var_name", "string", "That of the TemporaryVariable."}},
                .traits = {.stateful = true},
                .shape = shape_rules::unchanged,
                .no_gradient = "what was put into the variable is not known"});
  registry.kernel<DestroyTemporaryVariable>("DestroyTemporaryVariable", DeviceKind::kCpu);

  registry.add({.name = "IsVariableInitialized",
                .doc = "Whether the variable has a value.",
                .inputs = {{"ref", "ref(dtype)"}},
                .outputs = {{"is_initialized", "host(bool)"}},
                .types = {{"dtype", {}}},
                .traits = {.stateful = true,
                           .allows_uninitialized_input = true,
                           .cannot_differentiate = true},
                .shape = shape_rules::scalar});
  registry.kernel("IsVariableInitialized", DeviceKind::kAny, is_initialized);
}

}  // namespace millrace
