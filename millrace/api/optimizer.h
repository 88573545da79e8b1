#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/api/variables.h"
#include "millrace/autodiff/gradients.h"

namespace millrace {

// A variable and the gradient of a loss with respect to it: none, a tensor, or rows.
struct VariableGradient {
  Gradient gradient;
  Variable* variable = nullptr;
};

// A number, or a tensor such as a schedule gives. Converted to the type of each variable.
class LearningRate {
 public:
  LearningRate(double value) : value_(value) {}   // NOLINT(google-explicit-constructor)
  LearningRate(Expr tensor) : tensor_(tensor) {}  // NOLINT(google-explicit-constructor)
  Expr as(const Scope& scope, DType dtype) const;

 private:
  double value_ = 0;
  Expr tensor_;
};

// Makes a loss smaller by changing variables along its gradient. The classes of optimizers.h say
// how; this one gets the gradients, and has one fused operation per variable apply them.
//
//   Adam adam(vars, 1e-3);
//   Operation train = adam.minimize(root, loss);
//   MR_TRY(session.run({}, {}, {vars.initialize()}).status());
//   ... session.run({{x, batch}}, {loss}, {train}) ...
//
// A gradient that is rows of a table changes these rows only; rows that come several times are
// summed first. What an optimiser remembers about a variable is in slots: variables of their own,
// called "<variable>/<optimiser>", then "<variable>/<optimiser>_1".
//
// Operations go to the scope given. Errors stick there. The variables must outlive this.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Operation that changes the variables once. No variable changes before the loss and all
  // gradients are there, so what a step computes does not depend on how threads run it. Runs the
  // updates that layers asked for (Variables::updates()) and adds one to `global_step`, too.
  // `variables`: empty for all trainable ones.
  Operation minimize(const Scope& scope, Expr loss, Variable* global_step = nullptr,
                     const std::vector<Variable*>& variables = {},
                     SourceLocation where = SourceLocation::current());

  // The two halves of minimize(), to change gradients in between.
  std::vector<VariableGradient> compute_gradients(const Scope& scope, Expr loss,
                                                  const std::vector<Variable*>& variables = {},
                                                  const GradientOptions& options = {},
                                                  SourceLocation where = SourceLocation::current());
  // Waits for all gradients. Variables whose gradient is none stay as they are; INVALID_ARGUMENT
  // when that is all of them.
  Operation apply_gradients(const Scope& scope, const std::vector<VariableGradient>& gradients,
                            Variable* global_step = nullptr,
                            SourceLocation where = SourceLocation::current());

  const std::string& name() const { return name_; }
  // In the order in which the op takes them.
  std::vector<std::string> slot_names() const;
  // What is remembered about `variable`; null when there is no such slot, or no gradient was
  // applied to the variable yet.
  Variable* get_slot(const Variable& variable, std::string_view slot) const;

 protected:
  struct Slot {
    std::string name;
    double initial = 0;
  };
  // What the op takes besides variables and gradient, by the name of the op's input.
  using Scalars = std::vector<std::pair<std::string_view, Expr>>;

  // The ops are ResourceApply<op> and ResourceSparseApply<op>, with these attributes.
  Optimizer(Variables& variables, std::string op, LearningRate rate, std::vector<Slot> slots,
            AttrMap attrs = {});

  // As tensors of this type. Called once per step built and type.
  virtual Scalars scalars(const Scope& scope, DType dtype) = 0;
  // Changes the rows `indices`, which are all different unless linear().
  virtual Operation apply_rows(const Scope& scope, Variable& variable, Expr rows, Expr indices);
  // Changes the optimiser's own variables at the end of a step.
  virtual std::vector<Operation> finish(const Scope& scope);
  // Whether the sum of two steps is the step of the sum: rows may then come several times.
  virtual bool linear() const { return false; }

  void rename(std::string name) { name_ = std::move(name); }
  Expr rate(const Scope& scope, DType dtype) const { return rate_.as(scope, dtype); }
  static Expr number(const Scope& scope, double value, DType dtype);
  // beta to the power of the number of this step, from a variable called `name`.
  Expr power(const Scope& scope, std::string_view name, double beta, DType dtype);
  // A variable of the optimiser's own, made at first use.
  Variable& own_variable(std::string_view name, DType dtype, double initial);
  // One of scalars() of the step being built.
  Expr scalar(std::string_view name, DType dtype) const;
  // Adds `op`, which takes the variable, its slots in order, and scalars by name.
  Operation apply(const Scope& scope, std::string_view op, const Variable& variable, Expr gradient,
                  Expr indices = {});
  // The slots of a variable, made at first use.
  const std::vector<Variable*>& slots_of(const Variable& variable);

 private:
  struct Power {
    Variable* variable;
    double beta;
  };

  // apply_gradients() that waits for the operations `computed`, too.
  Operation apply_after(const Scope& scope, std::vector<Operation> computed,
                        const std::vector<VariableGradient>& gradients, Variable* global_step,
                        SourceLocation where);

  Variables& variables_;
  std::string name_;
  std::string op_;
  LearningRate rate_;
  std::vector<Slot> slots_;
  AttrMap attrs_;
  std::vector<std::pair<const Variable*, std::vector<Variable*>>> made_;
  std::vector<std::pair<std::string, Variable*>> own_;
  std::vector<Power> powers_;
  std::vector<std::pair<DType, Scalars>> scalars_;  // of the step being built
};

}  // namespace millrace
