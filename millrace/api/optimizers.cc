#include "millrace/api/optimizers.h"

namespace millrace {
namespace {

constexpr const char* kBeta1Power = "beta1_power";
constexpr const char* kBeta2Power = "beta2_power";

Expr gather(const Scope& scope, const Variable& variable, Expr indices) {
  return scope.output(
      scope.add("ResourceGather", {variable.handle, indices}, {{"dtype", variable.dtype}}), 0);
}

Operation scatter(const Scope& scope, const Variable& variable, Expr indices, Expr rows) {
  return scope.add("ResourceScatterUpdate", {variable.handle, indices, rows}, {});
}

Operation all_of(const Scope& scope, std::initializer_list<Operation> operations) {
  return scope.with_control(operations).add("NoOp", {}, {});
}

Expr norm(const Scope& scope, Expr x) {
  return sqrt(
      sum(square(x), range(scope.constant(int32_t{0}), rank(x), scope.constant(int32_t{1}))));
}

}  // namespace

GradientDescent::GradientDescent(Variables& variables, LearningRate rate)
    : Optimizer(variables, "GradientDescent", rate, {}) {}

Optimizer::Scalars GradientDescent::scalars(const Scope& scope, DType dtype) {
  return {{"alpha", rate(scope, dtype)}};
}

Momentum::Momentum(Variables& variables, LearningRate rate, double mu,
                   const MomentumOptions& options)
    : Optimizer(variables, "Momentum", rate, {{"momentum"}}, {{"use_nesterov", options.nesterov}}),
      mu_(mu) {}

Optimizer::Scalars Momentum::scalars(const Scope& scope, DType dtype) {
  return {{"lr", rate(scope, dtype)}, {"momentum", number(scope, mu_, dtype)}};
}

Adagrad::Adagrad(Variables& variables, LearningRate rate, double initial_accumulator)
    : Optimizer(variables, "Adagrad", rate, {{"accumulator", initial_accumulator}}) {}

Optimizer::Scalars Adagrad::scalars(const Scope& scope, DType dtype) {
  return {{"lr", rate(scope, dtype)}};
}

AdagradDa::AdagradDa(Variables& variables, LearningRate rate, const AdagradDaOptions& options)
    : Optimizer(variables, "AdagradDA", rate,
                {{"gradient_accumulator"},
                 {"gradient_squared_accumulator", options.initial_squared_accumulator}}),
      options_(options) {}

Variable& AdagradDa::step() { return own_variable("adagrad_da_step", DType::kInt64, 1); }

Optimizer::Scalars AdagradDa::scalars(const Scope& scope, DType dtype) {
  return {{"lr", rate(scope, dtype)},
          {"l1", number(scope, options_.l1, dtype)},
          {"l2", number(scope, options_.l2, dtype)},
          {"global_step", step().read(scope)}};
}

std::vector<Operation> AdagradDa::finish(const Scope& scope) {
  return {step().assign_add(scope, scope.constant(int64_t{1}))};
}

Adadelta::Adadelta(Variables& variables, LearningRate rate, const AdadeltaOptions& options)
    : Optimizer(variables, "Adadelta", rate, {{"accum"}, {"accum_update"}}), options_(options) {}

Optimizer::Scalars Adadelta::scalars(const Scope& scope, DType dtype) {
  return {{"lr", rate(scope, dtype)},
          {"rho", number(scope, options_.rho, dtype)},
          {"epsilon", number(scope, options_.epsilon, dtype)}};
}

Adam::Adam(Variables& variables, LearningRate rate, const AdamOptions& options)
    : Adam(variables, "Adam", rate, options) {}

Adam::Adam(Variables& variables, std::string op, LearningRate rate, const AdamOptions& options)
    : Optimizer(variables, std::move(op), rate, {{"m"}, {"v"}}), options_(options) {}

Optimizer::Scalars Adam::scalars(const Scope& scope, DType dtype) {
  return {{"lr", rate(scope, dtype)},
          {kBeta1Power, power(scope, kBeta1Power, options_.beta1, dtype)},
          {kBeta2Power, power(scope, kBeta2Power, options_.beta2, dtype)},
          {"beta1", number(scope, options_.beta1, dtype)},
          {"beta2", number(scope, options_.beta2, dtype)},
          {"epsilon", number(scope, options_.epsilon, dtype)}};
}

AdamW::AdamW(Variables& variables, LearningRate rate, double weight_decay,
             const AdamOptions& options)
    : Adam(variables, "AdamW", rate, options), weight_decay_(weight_decay) {}

Optimizer::Scalars AdamW::scalars(const Scope& scope, DType dtype) {
  Scalars out = Adam::scalars(scope, dtype);
  out.emplace_back("weight_decay", number(scope, weight_decay_, dtype));
  return out;
}

Operation AdamW::apply_rows(const Scope& scope, Variable& variable, Expr rows, Expr indices) {
  Expr keep = 1.0 - scalar("lr", variable.dtype) * weight_decay_;
  Operation decayed = scope.add("ResourceScatterMul", {variable.handle, indices, keep}, {});
  return apply(scope.with_control({decayed}), "ResourceSparseApplyAdam", variable, rows, indices);
}

AdaMax::AdaMax(Variables& variables, LearningRate rate, const AdamOptions& options)
    : Adam(variables, "AdaMax", rate, options) {}

Optimizer::Scalars AdaMax::scalars(const Scope& scope, DType dtype) {
  return {{"lr", rate(scope, dtype)},
          {kBeta1Power, power(scope, kBeta1Power, options().beta1, dtype)},
          {"beta1", number(scope, options().beta1, dtype)},
          {"beta2", number(scope, options().beta2, dtype)},
          {"epsilon", number(scope, options().epsilon, dtype)}};
}

Operation AdaMax::apply_rows(const Scope& scope, Variable& variable, Expr rows, Expr indices) {
  const DType dtype = variable.dtype;
  const std::vector<Variable*>& slots = slots_of(variable);
  Expr m = gather(scope, *slots[0], indices), v = gather(scope, *slots[1], indices);
  m = m * options().beta1 + rows * (1 - options().beta1);
  v = call("Maximum", {v * options().beta2, abs(rows)});
  Expr alpha = scalar("lr", dtype) / (1.0 - scalar(kBeta1Power, dtype));
  Expr w = gather(scope, variable, indices) - alpha * m / (v + options().epsilon);
  return all_of(scope,
                {scatter(scope, *slots[0], indices, m), scatter(scope, *slots[1], indices, v),
                 scatter(scope, variable, indices, w)});
}

Lamb::Lamb(Variables& variables, LearningRate rate, const LambOptions& options)
    : Adam(variables, "Lamb", rate, {options.beta1, options.beta2, options.epsilon}),
      weight_decay_(options.weight_decay) {}

Optimizer::Scalars Lamb::scalars(const Scope& scope, DType dtype) {
  Scalars out = Adam::scalars(scope, dtype);
  out.emplace_back("weight_decay", number(scope, weight_decay_, dtype));
  return out;
}

Operation Lamb::apply_rows(const Scope& scope, Variable& variable, Expr rows, Expr indices) {
  const DType dtype = variable.dtype;
  const std::vector<Variable*>& slots = slots_of(variable);
  Expr m = gather(scope, *slots[0], indices), v = gather(scope, *slots[1], indices);
  Expr w = gather(scope, variable, indices);
  m = m * options().beta1 + rows * (1 - options().beta1);
  v = v * options().beta2 + square(rows) * (1 - options().beta2);
  Expr m_hat = m / (1.0 - scalar(kBeta1Power, dtype));
  Expr v_hat = v / (1.0 - scalar(kBeta2Power, dtype));
  Expr u = m_hat / (sqrt(v_hat) + options().epsilon) + w * weight_decay_;
  Expr size = norm(scope, w), length = norm(scope, u);
  Expr zero = number(scope, 0, dtype), one = number(scope, 1, dtype);
  Expr both = logical_and(greater(size, zero), greater(length, zero));
  Expr ratio = select(both, size / select(both, length, one), one);
  return all_of(scope,
                {scatter(scope, *slots[0], indices, m), scatter(scope, *slots[1], indices, v),
                 scatter(scope, variable, indices, w - u * (ratio * scalar("lr", dtype)))});
}

RmsProp::RmsProp(Variables& variables, LearningRate rate, const RmsPropOptions& options)
    : Optimizer(variables, options.centered ? "CenteredRMSProp" : "RMSProp", rate,
                options.centered ? std::vector<Slot>{{"mg"}, {"rms", 1}, {"momentum"}}
                                 : std::vector<Slot>{{"rms", 1}, {"momentum"}}),
      options_(options) {
  rename("RMSProp");
}

Optimizer::Scalars RmsProp::scalars(const Scope& scope, DType dtype) {
  return {{"lr", rate(scope, dtype)},
          {"rho", number(scope, options_.decay, dtype)},
          {"momentum", number(scope, options_.momentum, dtype)},
          {"epsilon", number(scope, options_.epsilon, dtype)}};
}

Ftrl::Ftrl(Variables& variables, LearningRate rate, const FtrlOptions& options)
    : Optimizer(variables, "Ftrl", rate, {{"accum", options.initial_accumulator}, {"linear"}}),
      options_(options) {}

Optimizer::Scalars Ftrl::scalars(const Scope& scope, DType dtype) {
  return {{"lr", rate(scope, dtype)},
          {"l1", number(scope, options_.l1, dtype)},
          {"l2", number(scope, options_.l2, dtype)},
          {"lr_power", number(scope, options_.learning_rate_power, dtype)}};
}

ProximalGradientDescent::ProximalGradientDescent(Variables& variables, LearningRate rate,
                                                 const ProximalOptions& options)
    : Optimizer(variables, "ProximalGradientDescent", rate, {}), options_(options) {}

Optimizer::Scalars ProximalGradientDescent::scalars(const Scope& scope, DType dtype) {
  return {{"alpha", rate(scope, dtype)},
          {"l1", number(scope, options_.l1, dtype)},
          {"l2", number(scope, options_.l2, dtype)}};
}

ProximalAdagrad::ProximalAdagrad(Variables& variables, LearningRate rate,
                                 const ProximalOptions& options, double initial_accumulator)
    : Optimizer(variables, "ProximalAdagrad", rate, {{"accumulator", initial_accumulator}}),
      options_(options) {}

Optimizer::Scalars ProximalAdagrad::scalars(const Scope& scope, DType dtype) {
  return {{"lr", rate(scope, dtype)},
          {"l1", number(scope, options_.l1, dtype)},
          {"l2", number(scope, options_.l2, dtype)}};
}

}  // namespace millrace
