#pragma once

#include "millrace/kernel/registry.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/ops/training/optimizer_loops.h"

// What the dense and the sparse ops of an optimiser share.

namespace millrace {

// The optimiser whose op has this name: "SparseApplyAdagrad" is one of Adagrad's.
int optimizer_of(std::string_view op);

// The scalar arguments of an optimiser, in the type that it computes in.
struct OptimizerScalars {
  float floats[OptimizerInfo::kMaxArguments];
  double doubles[OptimizerInfo::kMaxArguments];
};

// The optimiser of one node, ready to be called.
class OptimizerFunction {
 public:
  static Result<OptimizerFunction> make(const KernelNode& node);

  const OptimizerInfo& info() const { return *info_; }
  DType dtype() const { return dtype_; }
  bool use_locking() const { return use_locking_; }
  // Of the optimiser's flag; false where it has none.
  bool flag() const { return flag_; }
  // The number of the input that is the gradient; in a sparse op the indices come next.
  int gradient_input() const { return info_->num_slots() + info_->gradient_place(); }

  // INVALID_ARGUMENT naming the first argument that is no scalar or not in its range.
  Result<OptimizerScalars> read_scalars(const KernelContext& ctx) const;

  // For an optimiser with a trust ratio: adds the squares of n elements of the variable and of the
  // direction to squares[0] and squares[1]. Changes nothing else.
  void add_squares(const void* const* slots, const void* grad, const OptimizerScalars& scalars,
                   int64_t n, double* squares) const;
  // Puts the ratio among the scalars.
  void set_trust_ratio(double ratio, OptimizerScalars& scalars) const;

  // Updates rows of `slots`. Half and bfloat16 pass through blocks of floats.
  void operator()(const ApplyRows& rows, void* const* slots, const void* grad,
                  const OptimizerScalars& scalars) const;

 private:
  OptimizerFunction() = default;
  Status check_range(const Argument& argument, double value) const;
  void through_float(const ApplyRows& rows, void* const* slots, const void* grad,
                     const OptimizerScalars& scalars) const;

  const OptimizerInfo* info_ = nullptr;
  ApplyLoop loop_ = nullptr;
  NormLoop norms_ = nullptr;
  FloatBlocks blocks_;
  DType dtype_ = DType::kInvalid;
  bool flag_ = false;
  bool use_locking_ = false;
};

// Defines the forms of every optimiser that `forms` contains, each with this shape rule and kernel.
void add_optimizer_ops(Registry& registry, unsigned forms, ShapeRule shape, KernelFactory factory);

}  // namespace millrace
