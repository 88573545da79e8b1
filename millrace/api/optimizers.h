#pragma once

#include "millrace/api/optimizer.h"

// The optimisers. In the formulas w is the variable, g its gradient, lr the learning rate, and
// operations are elementwise.

namespace millrace {

// w -= lr g
class GradientDescent : public Optimizer {
 public:
  GradientDescent(Variables& variables, LearningRate rate);

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;
  bool linear() const override { return true; }
};

// momentum = mu momentum + g; w -= lr momentum. Nesterov: w -= lr (g + mu momentum).
struct MomentumOptions {
  bool nesterov = false;
};
class Momentum : public Optimizer {
 public:
  Momentum(Variables& variables, LearningRate rate, double mu, const MomentumOptions& options = {});

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;

 private:
  double mu_;
};

// accumulator += g^2; w -= lr g / sqrt(accumulator)
class Adagrad : public Optimizer {
 public:
  Adagrad(Variables& variables, LearningRate rate, double initial_accumulator = 0.1);

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;
};

// Adagrad by dual averaging: w is computed from sums over all steps, with l1 and l2 regularisation.
struct AdagradDaOptions {
  double initial_squared_accumulator = 0.1;
  double l1 = 0;
  double l2 = 0;
};
class AdagradDa : public Optimizer {
 public:
  AdagradDa(Variables& variables, LearningRate rate, const AdagradDaOptions& options = {});

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;
  std::vector<Operation> finish(const Scope& scope) override;

 private:
  Variable& step();
  AdagradDaOptions options_;
};

// accum = rho accum + (1 - rho) g^2; u = sqrt(accum_update + epsilon) / sqrt(accum + epsilon) g;
// accum_update = rho accum_update + (1 - rho) u^2; w -= lr u
struct AdadeltaOptions {
  double rho = 0.95;
  double epsilon = 1e-8;
};
class Adadelta : public Optimizer {
 public:
  Adadelta(Variables& variables, LearningRate rate, const AdadeltaOptions& options = {});

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;

 private:
  AdadeltaOptions options_;
};

// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
// w -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon) at step t = 1, 2, ...
// Of rows, those not in the gradient keep m and v as well. All numbers are rounded to the
// variable's type: half takes an epsilon of 1e-4 rather than 1e-8, which is zero there, and
// bfloat16 a beta2 of 0.99 rather than 0.999, which is one.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
class Adam : public Optimizer {
 public:
  explicit Adam(Variables& variables, LearningRate rate = 1e-3, const AdamOptions& options = {});

 protected:
  // For optimisers that have Adam's moments and more.
  Adam(Variables& variables, std::string op, LearningRate rate, const AdamOptions& options);
  Scalars scalars(const Scope& scope, DType dtype) override;
  const AdamOptions& options() const { return options_; }

 private:
  AdamOptions options_;
};

// w -= lr decay w, then as Adam: the decay does not enter the moments.
class AdamW : public Adam {
 public:
  explicit AdamW(Variables& variables, LearningRate rate = 1e-3, double weight_decay = 0.01,
                 const AdamOptions& options = {});

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;
  Operation apply_rows(const Scope& scope, Variable& variable, Expr rows, Expr indices) override;

 private:
  double weight_decay_;
};

// m = beta1 m + (1 - beta1) g; v = max(beta2 v, |g|); w -= lr / (1 - beta1^t) m / (v + epsilon)
class AdaMax : public Adam {
 public:
  explicit AdaMax(Variables& variables, LearningRate rate = 1e-3, const AdamOptions& options = {});

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;
  Operation apply_rows(const Scope& scope, Variable& variable, Expr rows, Expr indices) override;
};

// With m and v of Adam: u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay w;
// w -= lr |w| / |u| u, where |.| is the Euclidean norm of the whole variable, or of the rows in the
// gradient. A norm of zero leaves |w| / |u| out.
struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
};
class Lamb : public Adam {
 public:
  explicit Lamb(Variables& variables, LearningRate rate = 1e-3, const LambOptions& options = {});

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;
  Operation apply_rows(const Scope& scope, Variable& variable, Expr rows, Expr indices) override;

 private:
  double weight_decay_;
};

// rms = decay rms + (1 - decay) g^2; momentum = mu momentum + lr g / sqrt(rms + epsilon);
// w -= momentum. Centred: mg = decay mg + (1 - decay) g, and rms - mg^2 instead of rms in the root.
struct RmsPropOptions {
  double decay = 0.9;
  double momentum = 0;
  double epsilon = 1e-10;
  bool centered = false;
};
class RmsProp : public Optimizer {
 public:
  RmsProp(Variables& variables, LearningRate rate, const RmsPropOptions& options = {});

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;

 private:
  RmsPropOptions options_;
};

// Follow the regularised leader: for sparse linear models, l1 makes weights exactly zero.
// n = accum + g^2; linear += g - (n^-p - accum^-p) / lr w; accum = n;
// w = -sign(linear) max(|linear| - l1, 0) / (n^-p / lr + 2 l2), p the learning_rate_power.
struct FtrlOptions {
  double learning_rate_power = -0.5;
  double initial_accumulator = 0.1;
  double l1 = 0;
  double l2 = 0;
};
class Ftrl : public Optimizer {
 public:
  Ftrl(Variables& variables, LearningRate rate, const FtrlOptions& options = {});

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;

 private:
  FtrlOptions options_;
};

// w = w - lr g, then moved towards zero by lr l1, and divided by 1 + lr l2.
struct ProximalOptions {
  double l1 = 0;
  double l2 = 0;
};
class ProximalGradientDescent : public Optimizer {
 public:
  ProximalGradientDescent(Variables& variables, LearningRate rate,
                          const ProximalOptions& options = {});

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;

 private:
  ProximalOptions options_;
};

// The same with Adagrad's rate, lr / sqrt(accumulator).
class ProximalAdagrad : public Optimizer {
 public:
  ProximalAdagrad(Variables& variables, LearningRate rate, const ProximalOptions& options = {},
                  double initial_accumulator = 0.1);

 protected:
  Scalars scalars(const Scope& scope, DType dtype) override;

 private:
  ProximalOptions options_;
};

}  // namespace millrace
